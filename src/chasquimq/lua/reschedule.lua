-- Give a delayed job another time, and tell of it.
--
-- KEYS     1 delayed set      2 side-index      3 marker      4 marker of an id unique until done
-- ARGV     1 'in' or 'at'     2 ms from now, or epoch ms      3 job id
--          4 channel that wakes the promoter
--          5 events, if it is told there      6 about so many are kept
-- Returns  1 it has its new time, 0 unknown or already promoted

-- The member that an index leads to, and its bytes before the id if the index has only those. The
-- same function is in cancel.lua.
local function find(index, job_id)
  local score, front = string.match(index, '^(%d%d%d%d+) (.*)$')
  if not score then return index end -- a copy of the member
  local wanted, low = front .. job_id, redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', KEYS[1], score, score)
  while low < high do -- members of one score lie in the order of their bytes, which `<` is not
    local middle, at = math.floor((low + high) / 2), 1
    local member = redis.call('ZRANGE', KEYS[1], middle, middle)[1]
    while at <= #wanted and string.byte(member, at) == string.byte(wanted, at) do at = at + 1 end
    if at > #wanted then return member, front end
    local before = (string.byte(member, at) or -1) < string.byte(wanted, at)
    if before then low = middle + 1 else high = middle end
  end
end

local index, member, front = redis.call('GET', KEYS[2])
if index then member, front = find(index, ARGV[3]) end
local was = member and redis.call('ZSCORE', KEYS[1], member)
if not was then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = math.max(now, tonumber(ARGV[2]) + (ARGV[1] == 'in' and now or 0))
redis.call('ZADD', KEYS[1], due, member)
if front then redis.call('SET', KEYS[2], string.format('%.0f ', due) .. front, 'KEEPTTL') end
local created = string.match(redis.call('GET', KEYS[4]) or '', '^%d+')
local unique = created and string.find(member, struct.pack('>I8', created), 1, true)
for i = 2, unique and 4 or 3 do -- index and markers outlive the job by as much as before
  local lives = redis.call('PTTL', KEYS[i])
  local anew = math.floor(math.max(lives - was, 1000 - now)) + due
  if lives > 0 then redis.call('PEXPIRE', KEYS[i], anew) end
end
if redis.call('ZRANGE', KEYS[1], 0, 0)[1] == member then redis.pcall('PUBLISH', ARGV[4], '1') end
if ARGV[5] then -- whatever befalls the event befalls the event alone, as in schedule.lua
  local row = {'e', 'delayed', 'id', ARGV[3], 'ts', now}
  local name = string.sub(member, 5, 4 + string.byte(member, 1) + string.byte(member, 2) * 256)
  if name ~= '' then row[7], row[8] = 'n', name end
  row[#row + 1], row[#row + 2] = 'delay_ms', due - now
  redis.pcall('XADD', ARGV[5], 'MAXLEN', '~', ARGV[6], '*', unpack(row))
end
return 1
