-- Acquire or renew the scheduler's lock; if it is ours, show the specs that are due.
--
-- KEYS     1 specs      2 lock
-- ARGV     1 holder      2 lock lives, s      3 how many at the most      4 key prefix of hashes
--          5 about so many bytes at the most
-- Returns  {-1} another leads, else {now, the first score after it or -1, how many specs there are,
--          how many had no spec and were removed, 1 if more may be due, then for each, the earliest
--          first, {key, score, bytes, retry, catchup}; no more than two where it is not a hash}

local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[1] then return {-1} end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local many, size, gone = tonumber(ARGV[3]), 0, {}
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'WITHSCORES', 'LIMIT', 0, many)
local due, more = {}, #found == 2 * many
for i = 1, #found, 2 do
  local hash = redis.pcall('HMGET', ARGV[4] .. found[i], 'spec', 'retry', 'catchup')
  if hash.err then
    -- Any other fault is ours and not the spec's, which is not to be put aside for it.
    if not string.find(hash.err, '^WRONGTYPE') then return hash end
    due[#due + 1] = {found[i], found[i + 1]}
  elseif not hash[1] then
    -- Nothing is lost: a program that fires what others remove leaves such behind.
    gone[#gone + 1] = found[i]
  else
    due[#due + 1] = {found[i], found[i + 1], hash[1], hash[2], hash[3]}
    size = size + #hash[1]
    if size > tonumber(ARGV[5]) then
      more = more or i + 1 < #found
      break
    end
  end
end
local coming = redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local next = math.ceil(math.min(tonumber(coming[2] or -1), 9007199254740991))
local left = redis.call('ZCARD', KEYS[1]) - #gone
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[2])
for _, key in ipairs(gone) do
  redis.call('DEL', ARGV[4] .. key)
  redis.call('ZREM', KEYS[1], key)
end
return {now, next, left, #gone, more and 1 or 0, unpack(due)}
