-- Acquire or renew the promoter's lock; if it is ours, move the due jobs to the stream.
--
-- KEYS     1 delayed set      2 stream      3 dlq      4 lock
-- ARGV     1 holder      2 lock lives, s      3 how many at the most      4 side-index key prefix
--          5 key prefix of the markers of ids that are unique until done
-- Returns  {-1} another leads, else {ms until the next is due or -1, depth left, lag ms of the
--          oldest overdue one left, how many were unreadable, then pairs: job id, name}

local holder, whole = redis.call('GET', KEYS[4]), redis.pcall('GET', ARGV[5])
if holder and holder ~= ARGV[1] then return {-1} end
-- While the slot moves to another node, a marker that has moved would look like none.
if type(whole) == 'table' and string.find(whole.err, 'non local') then return whole end
redis.call('SET', KEYS[4], ARGV[1], 'EX', ARGV[2])

local function split(member) -- name and envelope, as wire/delayed.py reads them
  local a, b, c, d = string.byte(member, 1, 4)
  local from, length = 2, a or 1
  if c == 0 and d == 0 then from, length = 5, a + b * 256 end
  if from + length > #member then return nil end
  return string.sub(member, from, from + length - 1), string.sub(member, from + length)
end

local function job_id(envelope) -- of the array form, which is what side-indexed jobs have
  local head, a, b = string.byte(envelope, 2, 4)
  if head and head >= 160 and head <= 191 then return string.sub(envelope, 3, head - 158) end
  if head == 217 and a then return string.sub(envelope, 4, 3 + a) end
  if head == 218 and b then return string.sub(envelope, 5, 4 + a * 256 + b) end
  return ''
end

local clock, moved, bad = redis.call('TIME'), {}, 0
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])) do
  local name, envelope = split(member)
  if not name then
    bad = bad + 1
    redis.call('XADD', KEYS[3], '*', 'd', member, 'source_id', '', 'reason', 'malformed',
      'detail', 'unreadable delayed member', 'failed_at_ms', string.format('%.0f', now))
  else
    local id, row = job_id(envelope), {'d', envelope, 'n', name}
    local marker = redis.pcall('GET', ARGV[5] .. id)
    row[6] = type(marker) == 'string' and string.match(marker, '^%d+ (%d+)') or nil
    if row[6] then row[5] = 'u' elseif name == '' then row = {'d', envelope} end
    redis.call('XADD', KEYS[2], '*', unpack(row))
    moved[#moved + 1], moved[#moved + 2] = id, name
  end
  redis.call('ZREM', KEYS[1], member)
end
-- Last: a side-index that we may not delete must not hold up the jobs.
for i = 1, #moved, 2 do redis.pcall('DEL', ARGV[4] .. moved[i]) end
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
local due = first[2] and math.min(tonumber(first[2]) - now, 1e12)
return {due and math.max(due, 0) or -1, redis.call('ZCARD', KEYS[1]), math.max(-(due or 0), 0), bad, unpack(moved)}
