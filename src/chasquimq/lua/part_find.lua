-- Find a delayed job by its side-index.
--
--   find(set, index, job_id)
--       set, index     the key of the delayed set, and the text of the index
--
-- Returns  of find: the member, and its bytes before the id if the index has only those; or nothing

local function find(set, index, job_id)
  local score, front = string.match(index, '^(%d%d%d%d+) (.*)$')
  if not score then return index end -- a copy of the member
  local wanted, low = front .. job_id, redis.call('ZCOUNT', set, '-inf', '(' .. score)
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do -- members of one score lie in the order of their bytes, which `<` is not
    local middle, at = math.floor((low + high) / 2), 1
    local member = redis.call('ZRANGE', set, middle, middle)[1]
    while at <= #wanted and string.byte(member, at) == string.byte(wanted, at) do at = at + 1 end
    if at > #wanted then return member, front end
    local before = (string.byte(member, at) or -1) < string.byte(wanted, at)
    if before then low = middle + 1 else high = middle end
  end
end
