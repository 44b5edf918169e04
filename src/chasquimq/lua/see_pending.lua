#!lua flags=no-writes
-- Show a page of what is pending, and whether its entries are still there.
--
-- KEYS     1 stream
-- ARGV     1 group      2 behind this entry, '-' from the first      3 how many at the most
--          4 about so many bytes of bodies at the most
-- Returns  {the entry to look behind next, '-' when all were shown, then for each
--          {consumer, idle ms, 1 if its entry is there}}

local from = ARGV[2] == '-' and '-' or '(' .. ARGV[2]
local last = '18446744073709551615-18446744073709551615' -- Redis refuses to look behind it
local page = ARGV[2] == last and {} or redis.call('XPENDING', KEYS[1], ARGV[1], from, '+', ARGV[3])
local rows, bytes = {#page == tonumber(ARGV[3]) and page[#page][1] or '-'}, 0
for at, row in ipairs(page) do
  local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
  rows[#rows + 1] = {row[2], row[3], entry and 1 or 0}
  for _, part in ipairs(entry and entry[2] or {}) do
    bytes = bytes + #part
  end
  if bytes > tonumber(ARGV[4]) and at < #page then -- looking copies the bodies
    rows[1] = row[1]
    break
  end
end
return rows
