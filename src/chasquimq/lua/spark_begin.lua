-- Begin, or go on with, a partition of a run of the Spark sink.
--
-- KEYS     1 run      2 the partition's marker
-- ARGV     1 they live, ms
-- Returns  {state of the run: open, moving or done; ms it was begun at; digests of the chunks that
--           are in, joined}

local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('HSETNX', KEYS[1], 'created_ms', string.format('%.0f', now))
redis.call('HSETNX', KEYS[1], 'state', 'open')
local told = redis.call('HMGET', KEYS[1], 'state', 'created_ms')
if told[1] ~= 'moving' then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return {told[1], tonumber(told[2]), redis.call('GET', KEYS[2]) or ''}
