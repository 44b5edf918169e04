-- Put a job into the delayed set; one whose id the caller chose, only once.
--
-- KEYS     1 delayed set      2 marker, 3 side-index: both or neither
-- ARGV     1 'in' or 'at'     2 ms from now, or epoch ms      3 member
--          4 channel that wakes the promoter      5 marker and index live, s
-- Returns  1 scheduled, 0 the id is scheduled already

if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then
  local now = redis.call('TIME')
  due = due + now[1] * 1000 + math.floor(now[2] / 1000)
end
redis.call('ZADD', KEYS[1], due, ARGV[3])
if KEYS[2] then
  redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[5])
  redis.call('SET', KEYS[2], '1', 'EX', ARGV[5])
end
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[3] then
  redis.pcall('PUBLISH', ARGV[4], '1')
end
return 1
