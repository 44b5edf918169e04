-- Begin, or go on with, a partition of a run of the Spark sink.
--
-- KEYS     1 run      2 the partition's marker      3 queries      4 if this write may be aborted:
--          what is there when it was
-- ARGV     1 they live, ms      2 how it writes: direct, id or staged
--          3 query of a stream, '' none      4 number of its batch
-- Returns  {state of the run: open, moving or done; or aborted: this write was, nothing is begun;
--           ms it was begun at; digests of the chunks that are in, joined; how it was begun}

local mode, query = ARGV[2] or 'direct', ARGV[3] or ''
local digests = redis.call('GET', KEYS[2]) or ''
local told = redis.call('HMGET', KEYS[1], 'state', 'created_ms', 'mode')
if query ~= '' then
  local last = redis.call('HGET', KEYS[3], query)
  if last and tonumber(last) >= tonumber(ARGV[4]) then return {'done', 0, '', mode} end
end
if KEYS[4] and redis.call('EXISTS', KEYS[4]) == 1 then return {'aborted', 0, '', mode} end
local clock = redis.call('TIME')
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local begun = tonumber(told[2] or now)
redis.call('HSETNX', KEYS[1], 'created_ms', now)
redis.call('HSETNX', KEYS[1], 'mode', mode)
redis.call('HSETNX', KEYS[1], 'state', 'open')
if query ~= '' then
  redis.call('HSET', KEYS[1], 'query', query, 'batch', ARGV[4]) -- for whoever must finish it
end
if told[1] ~= 'moving' then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
end
return {told[1] or 'open', begun, digests, told[3] or mode}
