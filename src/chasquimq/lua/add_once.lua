-- Add a job whose id must come in only once, where XADD has no IDMP.
--
-- KEYS     1 stream      2 marker
-- ARGV     1 marker lives, s      2 trim the stream to about this, 0 never      3... fields
-- Returns  the entry id, of the first add if this is a repetition

local known = redis.call('GET', KEYS[2])
if known then
  return known
end
local id
if ARGV[2] == '0' then
  id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
else
  id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, 3))
end
-- The marker comes second: memory that runs out between the two must not leave it alone.
redis.call('SET', KEYS[2], id, 'EX', ARGV[1])
return id
