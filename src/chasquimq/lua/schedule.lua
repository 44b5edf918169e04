-- Put a job into the delayed set, one whose id the caller chose only once; and tell of it.
--
-- KEYS     1 delayed set      2 side-index      3 marker, if the caller chose the id
-- ARGV     1 'in' or 'at'     2 ms from now, or epoch ms      3 member
--          4 channel that wakes the promoter      5 the index lives, s
--          6 bytes of the member before its id      7 the marker's value      8 it lives, s
--          9 events, if it is told there     10 about so many are kept     11 job id     12 name
-- Returns  1 scheduled, 0 the id is taken: its job is scheduled, or its marker says so

local known, mine = KEYS[3] and redis.call('GET', KEYS[3]), ARGV[7]
-- This very command, sent twice, is no duplicate. The reference's markers are all the same.
if known == '-' .. mine or known == mine and mine ~= '1' then return 1 end
if known and string.sub(known, 1, 1) ~= '-' then
  return redis.call('GET', KEYS[2]) == ARGV[3] and 1 or 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = tonumber(ARGV[2])
if ARGV[1] == 'in' then
  due = due + now
end
redis.call('ZADD', KEYS[1], due, ARGV[3])
if KEYS[3] then
  redis.call('SET', KEYS[2], ARGV[3], 'EX', ARGV[5])
  redis.call('SET', KEYS[3], mine, 'EX', ARGV[8])
else
  -- Less than a copy, and enough to find it. Four digits at least: a copy has zeros there.
  local front = string.sub(ARGV[3], 1, ARGV[6])
  redis.call('SET', KEYS[2], string.format('%04.0f ', due) .. front, 'EX', ARGV[5])
end
if redis.pcall('ZRANGE', KEYS[1], 0, 0)[1] == ARGV[3] then
  redis.pcall('PUBLISH', ARGV[4], '1')
end
if ARGV[9] then
  -- The job is in: whatever befalls its event befalls the event alone. That is why the stream is
  -- no key of ours: who may not write it would be refused the job.
  local row = {'e', 'delayed', 'id', ARGV[11], 'ts', now}
  if ARGV[12] ~= '' then
    row[7], row[8] = 'n', ARGV[12]
  end
  row[#row + 1], row[#row + 2] = 'delay_ms', math.max(0, due - now)
  redis.pcall('XADD', ARGV[9], 'MAXLEN', '~', ARGV[10], '*', unpack(row))
end
return 1
