-- Bring dead jobs back to the stream, and note which: a task that is run again tells the same.
--
-- With     part_revive
-- KEYS     1 dlq      2 stream      3 notes, a bit for each job of the run
-- ARGV     1 notes live, ms      2... six per job: its bit, and what `replay` takes: dlq id,
--          envelope, name, marker and holder or '' and ''
-- Returns  per job 1 this run has moved it, 0 it is gone, -1 it stays: a living job has its id

local ended, found = {}, {}
for i = 2, #ARGV, 6 do
  local noted = redis.call('GETBIT', KEYS[3], ARGV[i])
  local how = see_dead(KEYS[1], ARGV[i + 1], ARGV[i + 4], ARGV[i + 5])
  ended[#ended + 1] = how == 0 and noted or how
  found[i] = how == 1
end
for i = 2, #ARGV, 6 do
  if found[i] then
    revive(KEYS[1], KEYS[2], unpack(ARGV, i + 1, i + 5))
    redis.call('SETBIT', KEYS[3], ARGV[i], 1)
  end
end
redis.call('PEXPIRE', KEYS[3], ARGV[1])
return ended
