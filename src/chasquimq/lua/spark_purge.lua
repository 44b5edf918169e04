-- Delete dead jobs, and note which: a task that is run again tells the same.
--
-- KEYS     1 dlq      2 notes, a bit for each job of the run
-- ARGV     1 notes live, ms      2... two per job: its bit, dlq id
-- Returns  per job 1 this run has deleted it, 0 it is gone

local ended = {}
for i = 2, #ARGV, 2 do
  local how = redis.call('XDEL', KEYS[1], ARGV[i + 1])
  if how == 1 then
    redis.call('SETBIT', KEYS[2], ARGV[i], 1)
  else
    how = redis.call('GETBIT', KEYS[2], ARGV[i])
  end
  ended[#ended + 1] = how
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return ended
