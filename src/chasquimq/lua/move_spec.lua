-- Give a spec another next fire, if it is as we saw it: put it aside, or take it up again.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key      2 its score and 3 the sum of its bytes ('' none), as we saw them
--          4 new score      5 where it stood and why it was put aside, '' it is taken up
--          6 channel that wakes the scheduler      7 the note that it was put aside with
-- Returns  1 moved, 0 it is not as we saw it

local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
local seen = redis.pcall('HMGET', KEYS[2], 'spec', 'retry', 'aside')
if seen.err and not string.find(seen.err, '^WRONGTYPE') then return seen end
if not score or tonumber(score) ~= tonumber(ARGV[2]) then return 0 end
-- What is no hash cannot hold the note, and is put aside all the same.
local hash = not seen.err and seen[1]
if (hash and redis.sha1hex(hash .. (seen[2] or '')) or '') ~= ARGV[3] then return 0 end
-- Another note: it was taken up meanwhile, fired, and was put aside again.
if hash and ARGV[5] == '' and (seen[3] or '') ~= ARGV[7] then return 0 end
-- The note before the score and away after it: beside a moment it says nothing.
if hash and ARGV[5] ~= '' then redis.call('HSET', KEYS[2], 'aside', ARGV[5]) end
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
if hash then redis.call('HDEL', KEYS[2], 'catchup') end
if hash and ARGV[5] == '' then redis.call('HDEL', KEYS[2], 'aside') end
if redis.pcall('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[1] then
  redis.pcall('PUBLISH', ARGV[6], 'specs')
end
return 1
