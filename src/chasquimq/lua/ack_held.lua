-- Ack and delete entries, but only those that are still ours: our leases may have run out.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3... entry ids
-- Returns  how many were ours

local ours, acked = {}, 0
for i = 3, #ARGV do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if #held == 1 and held[1][2] == ARGV[2] then
    ours[#ours + 1] = ARGV[i]
  end
end
for at = 1, #ours, 1000 do -- Lua cannot pass on as many values at once as Redis takes
  local ids = {unpack(ours, at, math.min(at + 999, #ours))}
  acked = acked + redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
  redis.call('XDEL', KEYS[1], unpack(ids))
end
return acked
