-- Bring dead jobs back to the stream, and note which: a task that is run again tells the same.
--
-- With     part_revive
-- KEYS     1 dlq      2 stream      3 notes, a bit for each job of the run
-- ARGV     1 notes live, ms      2... six per job: its bit, and what `replay` takes: dlq id,
--          envelope, name, marker and holder or '' and ''
-- Returns  per job 1 this run has moved it, 0 it is gone, -1 it stays: a living job has its id

local ended = {}
for i = 2, #ARGV, 6 do
  local how = revive(KEYS[1], KEYS[2], unpack(ARGV, i + 1, i + 5))
  if how == 1 then
    redis.call('SETBIT', KEYS[3], ARGV[i], 1)
  elseif how == 0 then
    how = redis.call('GETBIT', KEYS[3], ARGV[i])
  end
  ended[#ended + 1] = how
end
redis.call('PEXPIRE', KEYS[3], ARGV[1])
return ended
