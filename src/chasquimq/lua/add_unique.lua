-- Add a job, unless its marker says that one with its id is there.
--
-- KEYS     1 stream      2 marker
-- ARGV     1 what to write into the marker      2 it lives, s
--          3 trim the stream to about this, 0 never      4... fields
-- Returns  1 added, 0 a duplicate

local known = redis.call('GET', KEYS[2])
if known == ARGV[1] or known == '-' .. ARGV[1] then
  return 1 -- this very command, sent twice: the job came in, and may be done
end
if known and string.sub(known, 1, 1) ~= '-' then
  return 0
end
if ARGV[3] == '0' then
  redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
else
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[3], '*', unpack(ARGV, 4))
end
-- The marker comes second: memory that runs out between the two must not leave it alone.
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
return 1
