-- List what is pending under our name, after a read whose reply was lost.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3 how many at the most
-- Returns  rows {entry id, fields, 0, deliveries before the one that was lost}

local rows = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[3], ARGV[2])) do
  local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
  if entry then
    redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'JUSTID')
    rows[#rows + 1] = {row[1], entry[2], 0, row[4] - 1}
  end
end
return rows
