-- Move an entry we hold to the delayed set, to run again later.
--
-- With     part_lacking
-- KEYS     1 stream      2 delayed set      3 marker, if its id is unique until it is done
-- ARGV     1 group       2 consumer      3 entry id      4 delay, ms      5 member
--          6 channel that wakes the promoter      7 when the unique job was created, ms
-- Returns  1 moved, 0 no longer ours (another consumer claimed or settled it)

local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then
  return 0
end
local marker = KEYS[3] and redis.pcall('GET', KEYS[3])
if type(marker) == 'table' and not string.find(marker.err, '^WRONGTYPE') then return marker end
-- A marker of another type or form is not this job's, and stays as it is.
local created, limit = string.match(type(marker) == 'string' and marker or '', '^(%d+) (%d+)')
if limit and #limit > 11 then limit = '99999999999' end -- EXPIRE refuses a larger number
local refused = lacking(KEYS[1], 'XACK', 'XDEL') or KEYS[3] and lacking(KEYS[3], 'EXPIRE')
if refused then return refused end
local now = redis.call('TIME')
redis.call('ZADD', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000) + ARGV[4], ARGV[5])
if created and created == ARGV[7] then
  redis.call('EXPIRE', KEYS[3], limit + math.ceil(ARGV[4] / 1000))
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
if redis.pcall('ZRANGE', KEYS[2], 0, 0)[1] == ARGV[5] then
  redis.pcall('PUBLISH', ARGV[6], '1')
end
return 1
