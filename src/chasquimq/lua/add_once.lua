-- Add a job whose id must come in only once, unless it was removed unread, where XADD has no IDMP.
--
-- With     part_unread
-- KEYS     1 stream      2 marker
-- ARGV     1 marker lives, s      2 trim the stream to about this, 0 never      3... fields
-- Returns  1 added, 2 it came in before

local known = redis.call('GET', KEYS[2])
local readable = known and string.match(known, '^%d+%-%d+$')
if known and not (readable and removed_unread(KEYS[1], known)) then
  return 2
end
local id
if ARGV[2] == '0' then
  id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
else
  id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[2], '*', unpack(ARGV, 3))
end
-- The marker comes second: memory that runs out between the two must not leave it alone.
redis.call('SET', KEYS[2], id, 'EX', ARGV[1])
return 1
