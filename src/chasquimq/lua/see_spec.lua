#!lua flags=no-writes
-- Show a spec as it is now.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key
-- Returns  {now, score or nil, {bytes, retry, fired, aside}}; no third where there is no hash

local now = redis.call('TIME')
local hash = redis.pcall('HMGET', KEYS[2], 'spec', 'retry', 'fired', 'aside')
if hash.err and not string.find(hash.err, '^WRONGTYPE') then return hash end
local score = redis.call('ZSCORE', KEYS[1], ARGV[1])
return {now[1] * 1000 + math.floor(now[2] / 1000), score, not hash.err and hash or nil}
