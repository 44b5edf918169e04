-- Ack and delete entries, where the server has no XACKDEL.
--
-- KEYS     1 stream
-- ARGV     1 group       2... entry ids
-- Returns  how many were still pending

local acked = 0
for first = 2, #ARGV, 1000 do -- Lua cannot pass on as many values at once as Redis takes
  local ids = {unpack(ARGV, first, math.min(first + 999, #ARGV))}
  acked = acked + redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
  redis.call('XDEL', KEYS[1], unpack(ids))
end
return acked
