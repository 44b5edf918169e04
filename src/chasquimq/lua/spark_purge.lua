-- Delete dead jobs, and note which: a task that is run again tells the same.
--
-- KEYS     1 dlq      2 notes, a bit for each job of the run
-- ARGV     1 notes live, ms      2... two per job: its bit, dlq id
-- Returns  per job 1 this run has deleted it, 0 it is gone

local ended = {}
for i = 2, #ARGV, 2 do ended[i / 2] = redis.call('GETBIT', KEYS[2], ARGV[i]) end
for i = 2, #ARGV, 2 do
  if redis.call('XDEL', KEYS[1], ARGV[i + 1]) == 1 then
    redis.call('SETBIT', KEYS[2], ARGV[i], 1)
    ended[i / 2] = 1
  end
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return ended
