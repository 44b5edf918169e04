#!lua flags=no-writes
-- List specs by when they fire next, those of one moment by key.
--
-- KEYS     1 specs
-- ARGV     1 how many at the most      2 key prefix of hashes      3 about so many bytes at the most
--          4 score and 5 key of the one to go on behind, if any
-- Returns  for each {key, score, {bytes, retry, fired, aside}}; no third where there is no hash

local function before(a, b) -- by bytes; the server's own comparison depends on its locale
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local from = 0
if ARGV[5] then
  -- It may have moved on or be gone, so its place is searched for: behind all that come before it.
  from = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. ARGV[4])
  local above = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[4])
  while from < above do
    local middle = math.floor((from + above) / 2)
    if before(ARGV[5], redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then
      above = middle
    else
      from = middle + 1
    end
  end
end
local rows, size = {}, 0
local found = redis.call('ZRANGE', KEYS[1], from, from + ARGV[1] - 1, 'WITHSCORES')
for i = 1, #found, 2 do
  local hash = redis.pcall('HMGET', ARGV[2] .. found[i], 'spec', 'retry', 'fired', 'aside')
  if hash.err and not string.find(hash.err, '^WRONGTYPE') then return hash end
  rows[#rows + 1] = {found[i], found[i + 1], not hash.err and hash or nil}
  size = size + #(hash[1] or '')
  if size > tonumber(ARGV[3]) then break end
end
return rows
