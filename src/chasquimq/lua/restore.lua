-- Write back an entry that we hold, out of our own memory, as a new one.
--
-- With     part_lacking
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3 entry id      4... its fields
-- Returns  1 it is back, 0 no longer ours

local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then
  return 0
end
local refused = lacking(KEYS[1], 'XACK', 'XDEL')
if refused then return refused end
redis.call('XADD', KEYS[1], '*', unpack(ARGV, 4))
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
