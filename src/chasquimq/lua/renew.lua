-- Keep our hold on entries: reset their idle clocks, leave their counts alone.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3... entry ids
-- Returns  the ids that are no longer ours

local mine, keep, lost = {}, {}, {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100000, ARGV[2])) do
  mine[row[1]] = true
end
for i = 3, #ARGV do
  if mine[ARGV[i]] then
    keep[#keep + 1] = ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
end
if #keep > 0 then
  keep[#keep + 1] = 'JUSTID'
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(keep))
end
return lost
