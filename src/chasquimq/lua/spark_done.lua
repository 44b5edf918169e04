-- A run of the Spark sink is done: whoever comes later adds nothing.
--
-- KEYS     1 run      2 manifest      3 queries
-- ARGV     1 the run is remembered for, ms      2 query of a stream, '' none      3 number of its
--          batch      4 '1': give up what its manifest promises and is not in
-- Returns  {1 done, 0 it was, -1 rows of the manifest are missing, -2 it is staged and has none yet;
--           rows that are in, of -1 and -2 those that were moved; rows promised}

local told = redis.call('HMGET', KEYS[1], 'state', 'moved', 'total', 'mode', 'rows')
local moved, total, rows = tonumber(told[2] or 0), tonumber(told[3] or 0), tonumber(told[5] or 0)
if told[1] == 'open' and told[4] == 'staged' then return {-2, moved, total} end
if told[1] == 'moving' and moved < total and ARGV[4] ~= '1' then return {-1, moved, total} end
local clock, last = redis.call('TIME'), ARGV[2] ~= '' and redis.call('HGET', KEYS[3], ARGV[2])
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
if ARGV[2] ~= '' and (not last or tonumber(last) < tonumber(ARGV[3])) then
  redis.call('HSET', KEYS[3], ARGV[2], ARGV[3])
end
redis.call('HSETNX', KEYS[1], 'finished_ms', now)
redis.call('HSET', KEYS[1], 'state', 'done')
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return {told[1] == 'done' and 0 or 1, rows, total}
