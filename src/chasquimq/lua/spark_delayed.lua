#!lua flags=no-writes
-- List members of a sorted set from one place to another, so that each that stays comes once.
--
-- KEYS     1 sorted set
-- ARGV     1 score and 2 member of the place to stop at, with it      3 how many at the most
--          4 about so many bytes at the most      5 score and 6 member to go on behind, if any
--          A member stands behind a '='; nothing ('') is the place behind all of a score.
-- Returns  {1 if none is left, then member and score of each}

local function before(a, b) -- by bytes; the server's own comparison depends on its locale
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function behind(score, place) -- how many are at or in front of it
  local above = redis.call('ZCOUNT', KEYS[1], '-inf', score)
  if place == '' then return above end
  local member = string.sub(place, 2)
  local from = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  while from < above do
    local middle = math.floor((from + above) / 2)
    if before(member, redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then
      above = middle
    else
      from = middle + 1
    end
  end
  return from
end

local from, to = ARGV[5] and behind(ARGV[5], ARGV[6]) or 0, behind(ARGV[1], ARGV[2])
local rows, bytes, last = {1}, 0, math.min(to, from + ARGV[3])
while from < last and bytes < tonumber(ARGV[4]) do
  local page = redis.call('ZRANGE', KEYS[1], from, math.min(from + 10, last) - 1, 'WITHSCORES')
  for _, text in ipairs(page) do
    rows[#rows + 1], bytes = text, bytes + #text
  end
  from = from + #page / 2
end
rows[1] = from < to and 0 or 1
return rows
