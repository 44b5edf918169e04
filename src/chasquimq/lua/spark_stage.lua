-- Stage a chunk of an attempt's rows, unless it is there.
--
-- KEYS     1 run      2 stages of the run      3 the attempt's stage
-- ARGV     1 number of the chunk, from 1 on      2 rows that were staged before it      3 they live,
--          ms      4 per row there are 2: envelope, name; or 4: due and the caller's own id as well
--          5... the rows
-- Returns  1 staged, 0 it was, -1 too late: the run has its rows, -2 the run or what was staged
--          before this chunk is gone

local state = redis.call('HGET', KEYS[1], 'state')
if state == 'moving' or state == 'done' then return -1 end
local there, before = redis.call('XLEN', KEYS[3]), tonumber(ARGV[2])
if not state or there < before then return -2 end
if there > before then return 0 end
local clock, width = redis.call('TIME'), tonumber(ARGV[4])
local now = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
redis.call('SCARD', KEYS[2]) -- a key of another type is found before anything is written
for i = 5, #ARGV, width do
  local id, name = ARGV[1] .. '-' .. ((i - 5) / width + 1), ARGV[i + 1]
  if width == 4 and ARGV[i + 2] ~= '' then
    redis.call('XADD', KEYS[3], id, 'd', ARGV[i], 'n', name, 'w', ARGV[i + 2], 'i', ARGV[i + 3])
  elseif name ~= '' then
    redis.call('XADD', KEYS[3], id, 'd', ARGV[i], 'n', name)
  else
    redis.call('XADD', KEYS[3], id, 'd', ARGV[i])
  end
end
redis.call('HSET', KEYS[1], 'seen_ms', now)
redis.call('SADD', KEYS[2], KEYS[3])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3]) end
return 1
