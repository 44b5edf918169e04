-- Move an entry we hold to the DLQ; an id that was unique until its job is done is free again.
--
-- With     part_lacking
-- KEYS     1 stream      2 dlq      3 marker, if its id is unique
-- ARGV     1 group       2 consumer      3 entry id      4 trim the dlq to about this, 0 never
--          5 when the job was created, ms      6 for those who add it again it is remembered, s
--          7... the dlq entry's fields; the time of burial is added here
-- Returns  the dlq's length after it, 0 no longer ours

local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then
  return 0
end
local marker = KEYS[3] and redis.pcall('GET', KEYS[3])
if type(marker) == 'table' and not string.find(marker.err, '^WRONGTYPE') then return marker end
local mine = type(marker) == 'string' and string.match(marker, '^%d+') == ARGV[5] -- as in free.lua
local now = redis.call('TIME')
local refused = lacking(KEYS[1], 'XACK', 'XDEL')
if refused then return refused end
local row = {unpack(ARGV, 7)}
row[#row + 1] = 'failed_at_ms'
row[#row + 1] = string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000))
if ARGV[4] == '0' then
  redis.call('XADD', KEYS[2], '*', unpack(row))
else
  redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[4], '*', unpack(row))
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
if mine then
  redis.call('SET', KEYS[3], '-' .. marker, 'EX', ARGV[6])
end
local length = redis.pcall('XLEN', KEYS[2])
return type(length) == 'number' and length or 1
