-- Ack and delete entries, where the server has no XACKDEL.
--
-- KEYS     1 stream
-- ARGV     1 group       2... entry ids
-- Returns  how many were still pending

local acked = redis.call('XACK', KEYS[1], unpack(ARGV))
redis.call('XDEL', KEYS[1], unpack(ARGV, 2))
return acked
