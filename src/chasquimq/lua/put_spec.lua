-- Write a spec and when it fires next, if what lies under its key is what we saw there.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key      2 sha1 of the bytes we saw, '' none      3 next score, '' as it is
--          4 bytes      5 retry, '' none      6 channel that wakes the scheduler
-- Returns  1 written, 0 somebody changed it meanwhile

local seen = redis.call('HGET', KEYS[2], 'spec')
if (seen and redis.sha1hex(seen) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
redis.call('HSET', KEYS[2], 'spec', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[2], 'retry', ARGV[5])
else
  redis.call('HDEL', KEYS[2], 'retry')
end
if ARGV[3] ~= '' then
  redis.call('HDEL', KEYS[2], 'aside', 'catchup')
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
  if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then
    redis.pcall('PUBLISH', ARGV[6], 'specs')
  end
end
return 1
