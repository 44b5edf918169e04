#!lua flags=no-writes
-- Count the dead jobs of late, and leave their bodies where they are.
--
-- KEYS     1 dlq
-- ARGV     1 for so long, ms      2 count so many at the most
-- Returns  how many were buried

local now = redis.call('TIME')
local since = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
local from, left, count = string.format('%.0f', math.max(since, 0)), tonumber(ARGV[2]), 0
while left > 0 do -- by tens: a body may be large
  local page = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', math.min(left, 10))
  count, left = count + #page, left - #page
  from = '(' .. (page[#page] or {''})[1]
  if #page < 10 or from == '(18446744073709551615-18446744073709551615' then break end
end
return count
