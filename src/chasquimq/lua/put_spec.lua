-- Write a spec and when it fires next, if what lies under its key is what we saw there.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key      2 sum of the bytes we saw, '' none      3 next score, '' as it is
--          4 bytes      5 retry, '' none      6 channel that wakes the scheduler
--          7 if it stays aside: where it stands and why, else ''      8 its score as we saw it
-- Returns  1 written, 0 somebody changed it meanwhile

local seen = redis.call('HMGET', KEYS[2], 'spec', 'retry')
if (seen[1] and redis.sha1hex(seen[1] .. (seen[2] or '')) or '') ~= ARGV[2] then return 0 end
local score, now = redis.call('ZSCORE', KEYS[1], ARGV[1]) or '', redis.call('TIME')
if ARGV[3] == '' then
  if score == '' then return 0 end
elseif score ~= ARGV[8] and tonumber(ARGV[3]) <= now[1] * 1000 + now[2] / 1000 then
  return 0 -- it fired meanwhile, and two patterns may have that window in common
end
redis.call('HSET', KEYS[2], 'spec', ARGV[4])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[2], 'retry', ARGV[5])
else
  redis.call('HDEL', KEYS[2], 'retry')
end
if ARGV[3] ~= '' then
  if ARGV[7] ~= '' then redis.call('HSET', KEYS[2], 'aside', ARGV[7]) end
  redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
  redis.call('HDEL', KEYS[2], 'catchup')
  if ARGV[7] == '' then redis.call('HDEL', KEYS[2], 'aside') end
  if redis.pcall('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then
    redis.pcall('PUBLISH', ARGV[6], 'specs')
  end
end
return 1
