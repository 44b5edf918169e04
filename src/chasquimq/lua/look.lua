#!lua flags=no-writes
-- Look at all that a queue holds, at one moment.
--
-- KEYS     1 stream   2 dlq   3 delayed set   4 specs   5 events   6 paused
--          7 promoter's lock   8 scheduler's lock
-- ARGV     1 group   2 the score from which on a spec is paused
-- Returns  {ms now, {type of each key}, bytes of the first five (-1: not ours to ask),
--           {length, added ever} of stream, dlq and events, {members, first score, due, paused}
--           of delayed set and specs, holder of both locks or nil, consumers or nil}
--          A key of another type counts as empty.

local clock, kinds, bytes = redis.call('TIME'), {}, 0
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for i, key in ipairs(KEYS) do
  kinds[i] = redis.call('TYPE', key).ok
  if i <= 5 and bytes >= 0 then
    local size = redis.pcall('MEMORY', 'USAGE', key) or 0
    bytes = type(size) == 'number' and bytes + size or -1
  end
end

local function stream(i)
  if kinds[i] ~= 'stream' then return {0, 0} end
  local told = redis.call('XINFO', 'STREAM', KEYS[i])
  for n = 1, #told, 2 do
    told[told[n]] = told[n + 1]
  end
  return {told.length, told['entries-added'] or 0}
end

local function set(i)
  if kinds[i] ~= 'zset' then return {0, false, 0, 0} end
  local first = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  local due = redis.call('ZCOUNT', KEYS[i], '-inf', now)
  return {redis.call('ZCARD', KEYS[i]), first, due, redis.call('ZCOUNT', KEYS[i], ARGV[2], '+inf')}
end

local function holder(i)
  return kinds[i] == 'string' and redis.call('GET', KEYS[i])
end

local who = kinds[1] == 'stream' and redis.pcall('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])
if who and who.err then
  if not string.find(who.err, 'NOGROUP') then return who end
  who = false
end
return {now, kinds, bytes, stream(1), stream(2), stream(5), set(3), set(4), holder(7), holder(8), who}
