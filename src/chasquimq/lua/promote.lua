-- Acquire or renew the promoter's lock; if it is ours, move the due jobs to the stream.
--
-- With     part_member
-- With     part_lacking
-- KEYS     1 delayed set      2 stream      3 dlq      4 lock
-- ARGV     1 holder      2 lock lives, s      3 how many at the most      4 side-index key prefix
--          5 key prefix of the markers of ids that are unique until done
-- Returns  {-1} another leads, else {ms until the next is due or -1, depth left, lag ms of the
--          oldest overdue one left, how many were unreadable, then pairs: job id, name}

local holder, whole = redis.call('GET', KEYS[4]), redis.pcall('GET', ARGV[5])
if holder and holder ~= ARGV[1] then return {-1} end
-- While the slot moves to another node, a marker that has moved would look like none.
if type(whole) == 'table' and string.find(whole.err, 'non local') then return whole end
local clock, rows, moved, bad = redis.call('TIME'), {}, {}, 0
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local members = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[3])
local first = redis.call('ZRANGE', KEYS[1], #members, #members, 'WITHSCORES')
local depth = redis.call('ZCARD', KEYS[1]) - #members
local due = first[2] and math.min(tonumber(first[2]) - now, 1e12)
for n, member in ipairs(members) do
  local name, envelope = split(member)
  if not name then
    bad, rows[n] = bad + 1, {KEYS[3], '*', 'd', member, 'source_id', '', 'reason', 'malformed',
      'detail', 'unreadable delayed member', 'failed_at_ms', string.format('%.0f', now)}
  else
    local id, row = job_id(envelope), {KEYS[2], '*', 'd', envelope, 'n', name}
    local marker = redis.pcall('GET', ARGV[5] .. id)
    local limit = type(marker) == 'string' and string.match(marker, '^%d+ (%d+)')
    if limit then row[7], row[8] = 'u', #limit > 11 and '99999999999' or limit end
    rows[n] = (limit or name ~= '') and row or {KEYS[2], '*', 'd', envelope}
    moved[#moved + 1], moved[#moved + 2] = id, name
  end
end
local refused = #members > 0 and lacking(KEYS[1], 'ZREM')
if refused then return refused end
for i = 2, bad > 0 and 3 or 2 do redis.call('XLEN', KEYS[i]) end -- of another type: move nothing
redis.call('SET', KEYS[4], ARGV[1], 'EX', ARGV[2])
for n, member in ipairs(members) do
  redis.call('XADD', unpack(rows[n]))
  redis.call('ZREM', KEYS[1], member)
end
-- Last: a side-index that we may not delete must not hold up the jobs.
for i = 1, #moved, 2 do redis.pcall('DEL', ARGV[4] .. moved[i]) end
local lag = math.min(math.max(-(due or 0), 0), 9007199254740991)
return {due and math.max(due, 0) or -1, depth, lag, bad, unpack(moved)}
