-- Put a job into the delayed set, one whose id the caller chose only once; and tell of it.
--
-- KEYS     1 delayed set      2 marker, 3 side-index: both or neither
-- ARGV     1 'in' or 'at'     2 ms from now, or epoch ms      3 member
--          4 channel that wakes the promoter      5 marker and index live, s
--          6 events, if it is told there      7 about so many are kept      8 job id      9 name
-- Returns  1 scheduled, 0 the id is scheduled already

if KEYS[2] and redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then
  due = due + now
end
redis.call('ZADD', KEYS[1], due, ARGV[3])
if KEYS[2] then
  redis.call('SET', KEYS[3], ARGV[3], 'EX', ARGV[5])
  redis.call('SET', KEYS[2], '1', 'EX', ARGV[5])
end
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[3] then
  redis.pcall('PUBLISH', ARGV[4], '1')
end
if ARGV[6] then
  -- The job is in: whatever befalls its event befalls the event alone. That is why the stream is
  -- no key of ours: who may not write it would be refused the job.
  local row = {'e', 'delayed', 'id', ARGV[8], 'ts', now}
  if ARGV[9] ~= '' then
    row[7], row[8] = 'n', ARGV[9]
  end
  row[#row + 1], row[#row + 2] = 'delay_ms', math.max(0, due - now)
  redis.pcall('XADD', ARGV[6], 'MAXLEN', '~', ARGV[7], '*', unpack(row))
end
return 1
