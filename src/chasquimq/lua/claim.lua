-- Take over entries whose consumer has been silent, where XREADGROUP has no CLAIM.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3 idle at least, ms      4 how many at the most
-- Returns  rows {entry id, fields, idle ms, deliveries before this one}

local taken = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], '-', '+', ARGV[4])) do
  -- An entry whose body is gone is dropped from the pending list by XCLAIM itself.
  local got = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[3], row[1])
  if got[1] then
    taken[#taken + 1] = {row[1], got[1][2], row[3], row[4]}
  end
end
return taken
