#!lua flags=no-writes
-- Look at the entries of one end of a stretch of a stream, without bringing them.
--
-- KEYS     1 stream
-- ARGV     1 XRANGE or XREVRANGE      2 from and 3 to, as that takes them      4 how many at the most
--          5 about so many bytes of bodies at the most, but two entries at least
-- Returns  {how many were seen, 1 if those are all, id of the first, id of the last, id of the
--           farthest in the same millisecond where the last is still in that of the first}

local from, most, limit = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local seen, bytes, count, all = 0, 0, math.min(2, most), false
local first, last = '', ''
repeat
  local page = redis.call(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', count)
  for _, entry in ipairs(page) do
    for _, part in ipairs(entry[2]) do bytes = bytes + #part end
  end
  if #page > 0 then
    first, last = seen == 0 and page[1][1] or first, page[#page][1]
    seen, from = seen + #page, '(' .. last
  end
  all = #page < count or last == '18446744073709551615-18446744073709551615'
  count = math.min(most - seen, math.ceil((limit - bytes) * seen / math.max(bytes, 1)))
until all or count < 1

local ms = string.match(last, '^%d+')
if all or ms ~= string.match(first, '^%d+') then return {seen, all and 1 or 0, first, last} end
local other = ARGV[1] == 'XRANGE' and 'XREVRANGE' or 'XRANGE'
return {seen, 0, first, last, redis.call(other, KEYS[1], ms, ms, 'COUNT', 1)[1][1]}
