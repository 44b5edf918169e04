-- Remove a spec.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key
-- Returns  1 removed, 0 there was none

return math.max(redis.call('ZREM', KEYS[1], ARGV[1]), redis.call('DEL', KEYS[2]))
