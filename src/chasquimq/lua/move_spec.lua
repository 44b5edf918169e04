-- Give a spec another next fire, if it is as we saw it: put it aside, or take it up again.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key      2 its score and 3 the sha1 of its bytes ('' none), as we saw them
--          4 new score      5 where it stood and why it was put aside, '' it is taken up
--          6 channel that wakes the scheduler
-- Returns  1 moved, 0 it is not as we saw it

local score, spec = redis.call('ZSCORE', KEYS[1], ARGV[1]), redis.pcall('HGET', KEYS[2], 'spec')
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
if (type(spec) == 'string' and redis.sha1hex(spec) or '') ~= ARGV[3] then return 0 end
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
-- What is no hash cannot hold the note, and is put aside all the same.
if ARGV[5] ~= '' then
  redis.pcall('HSET', KEYS[2], 'aside', ARGV[5])
else
  redis.pcall('HDEL', KEYS[2], 'aside')
end
redis.pcall('HDEL', KEYS[2], 'catchup')
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then
  redis.pcall('PUBLISH', ARGV[6], 'specs')
end
return 1
