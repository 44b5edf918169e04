#!lua flags=no-writes
-- Look at the entries of one end of a stretch of a stream, without bringing them.
--
-- KEYS     1 stream
-- ARGV     1 XRANGE or XREVRANGE      2 from and 3 to, as that takes them      4 how many at the most
--          5 about so many bytes of bodies at the most, but two entries at least
--          6 how many are the last few
-- Returns  {how many were seen, 1 if those are all, ids of the first, of the first of the last few and
--           of the last; id of the farthest in the same millisecond, if all were in one}

local from, most, limit = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local ids, bytes, count, all = {}, 0, math.min(2, most), false
repeat
  local page = redis.call(ARGV[1], KEYS[1], from, ARGV[3], 'COUNT', count)
  for _, entry in ipairs(page) do
    ids[#ids + 1] = entry[1]
    for _, part in ipairs(entry[2]) do bytes = bytes + #part end
  end
  from = '(' .. (ids[#ids] or '')
  all = #page < count or from == '(18446744073709551615-18446744073709551615'
  count = math.min(most - #ids, math.ceil((limit - bytes) * #ids / math.max(bytes, 1)))
until all or count < 1
if #ids == 0 then return {0} end

local first, late, last = ids[1], ids[math.max(1, #ids - ARGV[6] + 1)], ids[#ids]
local ms = string.match(last, '^%d+')
if all or ms ~= string.match(first, '^%d+') then return {#ids, all and 1 or 0, first, late, last} end
local other = ARGV[1] == 'XRANGE' and 'XREVRANGE' or 'XRANGE'
return {#ids, 0, first, late, last, redis.call(other, KEYS[1], ms, ms, 'COUNT', 1)[1][1]}
