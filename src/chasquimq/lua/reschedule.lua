-- Give a delayed job another time, and tell of it.
--
-- With     part_find
-- KEYS     1 delayed set      2 side-index      3 marker      4 marker of an id unique until done
-- ARGV     1 'in' or 'at'     2 ms from now, or epoch ms      3 job id
--          4 channel that wakes the promoter
--          5 events, if it is told there      6 about so many are kept
-- Returns  1 it has its new time, 0 unknown or already promoted

local index, member, front = redis.call('GET', KEYS[2])
if index then member, front = find(KEYS[1], index, ARGV[3]) end
local was = member and redis.call('ZSCORE', KEYS[1], member)
if not was then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = math.max(now, tonumber(ARGV[2]) + (ARGV[1] == 'in' and now or 0))
local marker = redis.pcall('GET', KEYS[4])
if type(marker) == 'table' and not string.find(marker.err, '^WRONGTYPE') then return marker end
local created, anew = string.match(type(marker) == 'string' and marker or '', '^%d+'), {}
local unique = created and string.find(member, struct.pack('>I8', created), 1, true)
for i = 2, unique and 4 or 3 do -- index and markers outlive the job by as much as before
  local lives = redis.call('PTTL', KEYS[i])
  local ms = math.floor(math.max(lives - was, 1000 - now)) + due
  if lives > 0 then anew[i] = math.min(ms, 9007199254740991) end
end
redis.call('ZADD', KEYS[1], due, member)
if front then redis.call('SET', KEYS[2], string.format('%.0f ', due) .. front, 'KEEPTTL') end
for i, ms in pairs(anew) do redis.call('PEXPIRE', KEYS[i], ms) end
if redis.pcall('ZRANGE', KEYS[1], 0, 0)[1] == member then redis.pcall('PUBLISH', ARGV[4], '1') end
if ARGV[5] then -- whatever befalls the event befalls the event alone, as in schedule.lua
  local row = {'e', 'delayed', 'id', ARGV[3], 'ts', now}
  local name = string.sub(member, 5, 4 + (string.byte(member) or 0) + (string.byte(member, 2) or 0) * 256)
  if name ~= '' then row[7], row[8] = 'n', name end
  row[#row + 1], row[#row + 2] = 'delay_ms', due - now
  redis.pcall('XADD', ARGV[5], 'MAXLEN', '~', ARGV[6], '*', unpack(row))
end
return 1
