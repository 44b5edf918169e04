#!lua flags=no-writes
-- Walk over entries of a stream, their bodies left where they are, and tell of the stream.
--
-- KEYS     1 stream
-- ARGV     1 behind this id      2 up to this one, with it      3 so many at the most, 0 only tells
--          4 no further once they hold so many bytes
-- Returns  {how many were walked over, the last of them or '', 1 if none is left up to there,
--           the last id ever, entries added ever, length, the first id or '', the last one that was
--           deleted by itself, ms now}

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
if redis.call('EXISTS', KEYS[1]) == 0 then return {0, '', 1, '0-0', 0, 0, '', '0-0', now} end

local told = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #told, 2 do -- by name: servers differ in what they tell, and where
  told[told[i]] = told[i + 1]
end
local first = told['first-entry']

local walked, last, over, bytes = 0, '', 0, 0
local most, weight = tonumber(ARGV[3]), tonumber(ARGV[4])
while walked < most and bytes < weight do
  local size = math.min(10, most - walked) -- by tens: a body may be large
  local from = '(' .. (walked > 0 and last or ARGV[1])
  if from == '(18446744073709551615-18446744073709551615' then -- the server knows no place behind
    over = 1
    break
  end
  local page = redis.call('XRANGE', KEYS[1], from, ARGV[2], 'COUNT', size)
  for _, entry in ipairs(page) do
    for _, text in ipairs(entry[2]) do
      bytes = bytes + #text
    end
    last = entry[1]
  end
  walked = walked + #page
  if #page < size then
    over = 1
    break
  end
end
return {walked, last, over, told['last-generated-id'], told['entries-added'], told.length,
  first and first[1] or '', told['max-deleted-entry-id'], now}
