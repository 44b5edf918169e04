-- Take a delayed job back before it is due.
--
-- KEYS     1 delayed set      2 side-index      3 marker      4 marker of an id unique until done
-- ARGV     1 job id      2 for those who add it again it is remembered, s
-- Returns  1 cancelled, 0 unknown or already promoted

-- The member that an index leads to, and its bytes before the id if the index has only those. The
-- same function is in reschedule.lua.
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

local index = redis.call('GET', KEYS[2])
local member = index and find(index, ARGV[1])
if not member or redis.call('ZREM', KEYS[1], member) == 0 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
local marker = redis.call('GET', KEYS[4])
local created = string.match(marker or '', '^%d+')
if created and string.find(member, struct.pack('>I8', created), 1, true) then -- it is this job's
  redis.call('SET', KEYS[4], '-' .. marker, 'EX', ARGV[2])
end
return 1
