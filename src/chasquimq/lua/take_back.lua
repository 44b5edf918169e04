-- Take up one entry that an earlier run under our own name left pending; it counts as a delivery.
--
-- KEYS     1 stream      2 there while the queue is paused (left out by who may not look)
-- ARGV     1 group       2 consumer      3 not this one and none before it, '-' from the first
--          4 none behind this one
-- Returns  {entry id, fields, 0, deliveries before this one}, or nothing; {entry id} alone: none
--          up to this one had a body, ask again behind it; -1: the queue is paused

-- Asked without raising: who may not look works on.
if KEYS[2] and redis.pcall('EXISTS', KEYS[2]) == 1 then
  return -1
end
local from = ARGV[3] == '-' and '-' or '(' .. ARGV[3]
local page = redis.call('XPENDING', KEYS[1], ARGV[1], from, ARGV[4], 100, ARGV[2])
for _, row in ipairs(page) do
  -- An entry whose body is gone is dropped from the pending list by XCLAIM itself; whoever had
  -- its job in memory is dead.
  local got = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, row[1])
  if got[1] then
    return {row[1], got[1][2], 0, row[4]}
  end
end
return #page == 100 and {page[100][1]} or {}
