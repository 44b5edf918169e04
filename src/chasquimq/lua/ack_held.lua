-- Ack and delete entries, but only those that are still ours: our leases may have run out.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3... entry ids
-- Returns  how many were ours

local acked = 0
for i = 3, #ARGV do
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[i], ARGV[i], 1)
  if #held == 1 and held[1][2] == ARGV[2] then
    redis.call('XACK', KEYS[1], ARGV[1], ARGV[i])
    redis.call('XDEL', KEYS[1], ARGV[i])
    acked = acked + 1
  end
end
return acked
