#!lua flags=allow-oom
-- Remove a leader's lock that would never expire, if it is still as it was seen.
--
-- KEYS     1 lock
-- ARGV     1 who holds it
-- Returns  1 removed, 0 it changed meanwhile

if redis.call('GET', KEYS[1]) ~= ARGV[1] or redis.call('PTTL', KEYS[1]) ~= -1 then
  return 0
end
return redis.call('DEL', KEYS[1])
