-- Write the manifest of a staged run: its rows will come in, whoever moves them, and never expire.
--
-- KEYS     1 run      2 manifest      3... stages that count
-- ARGV     1 the stream holds no more than this      2 about so many events are kept, 0: not told
--          3 done, the run is remembered for, ms      4 rows per second that it may add, 0: no limit
--          5... how many rows each of the stages has
-- Returns  {1 written, 0 the run had another, or is done, -1 the run is gone, -2 a stage is not as its
--           task left it; the number of that stage, or the rows in all}

local state, first = redis.call('HGET', KEYS[1], 'state'), redis.call('LINDEX', KEYS[2], 0)
if state == 'moving' or state == 'done' then
  -- This very command, sent twice, finds its own.
  return {#KEYS > 2 and first == KEYS[3] and 1 or 0, 0}
end
if not state then return {-1, 0} end
local total = 0
for i = 3, #KEYS do
  local rows = tonumber(ARGV[i + 2])
  if redis.call('XLEN', KEYS[i]) ~= rows then return {-2, i - 2} end
  total = total + rows
end
for i = 3, #KEYS do
  redis.call('PERSIST', KEYS[i])
  redis.call('RPUSH', KEYS[2], KEYS[i])
end
redis.call('HSET', KEYS[1], 'state', 'moving', 'total', total, 'max_stream_len', ARGV[1],
  'events_len', ARGV[2], 'ttl_ms', ARGV[3], 'rate', ARGV[4]) -- for whoever must move them
redis.call('PERSIST', KEYS[1])
return {1, total}
