#!lua flags=no-writes
-- List what is pending, each with its entry, as it is at one moment.
--
-- KEYS     1 stream
-- ARGV     1 group      2 behind this entry      3 up to this one      4 how many at the most
--          5 about so many bytes of bodies at the most
-- Returns  {the entry to go on behind, '' when all were listed; then for each
--           {entry id, consumer, idle ms, deliveries, fields or nil where the entry is gone}}

local page = redis.pcall('XPENDING', KEYS[1], ARGV[1], '(' .. ARGV[2], ARGV[3], ARGV[4])
if page.err then -- nobody ever read this stream, or there is none
  return string.find(page.err, '^NOGROUP') and {''} or page
end
local rows, bytes = {#page == tonumber(ARGV[4]) and page[#page][1] or ''}, 0
if rows[1] == '18446744073709551615-18446744073709551615' then rows[1] = '' end -- nothing is behind
for at, row in ipairs(page) do
  local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
  local fields = entry and entry[2]
  rows[#rows + 1] = {row[1], row[2], row[3], row[4], fields or false}
  for _, part in ipairs(fields or {}) do bytes = bytes + #part end
  if bytes > tonumber(ARGV[5]) and at < #page then
    rows[1] = row[1]
    break
  end
end
return rows
