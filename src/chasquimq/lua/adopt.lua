-- List what is pending under our name and was not given back, after a read whose reply was lost.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3 how many at the most
-- Returns  rows {entry id, fields, 0, deliveries before the one that was lost}

local rows, from, most = {}, '-', tonumber(ARGV[3])
local size = math.max(most, 500)
local last = '18446744073709551615-18446744073709551615' -- Redis refuses to look behind it
for _ = 1, 10 do -- pages, so that entries whose body is gone do not hide those behind them
  local page = redis.call('XPENDING', KEYS[1], ARGV[1], from, '+', size, ARGV[2])
  for _, row in ipairs(page) do
    -- What give_back left under our name for others to claim looks 24 days idle: its count is
    -- right as it is.
    local ours = #rows < most and row[3] < 2073600000
    local entry = ours and redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
    if entry then
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1], 'JUSTID')
      rows[#rows + 1] = {row[1], entry[2], 0, row[4] - 1}
    end
  end
  if #rows == most or #page < size or page[size][1] == last then
    break
  end
  from = '(' .. page[size][1]
end
return rows
