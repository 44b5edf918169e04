-- Fire the due windows of a spec and move it on, if we lead and it is as we saw it.
--
-- With     part_lacking
-- KEYS     1 specs      2 the spec's hash      3 stream      4 lock
-- ARGV     1 holder      2 the spec's key      3 its score and 4 the sum of its bytes, as we saw
--          them      5 its next score, '' none will come      6 limit, 0 none
--          7 what is left of a catch-up that goes on, else ''      8 name      9... envelopes
-- Returns  {-1} another leads, {-2} it is not as we saw it,
--          else {how many were fired, 1 if it is over and was removed}

if redis.call('GET', KEYS[4]) ~= ARGV[1] then return {-1} end
local score = redis.call('ZSCORE', KEYS[1], ARGV[2])
local hash = redis.call('HMGET', KEYS[2], 'spec', 'retry', 'fired')
if not score or tonumber(score) ~= tonumber(ARGV[3]) then return {-2} end
if not hash[1] or redis.sha1hex(hash[1] .. (hash[2] or '')) ~= ARGV[4] then return {-2} end

-- No other number: one that is none, as 'nan', would never reach a limit.
local fired = tonumber(string.match(hash[3] or '', '^%d+$')) or 0
local limit, count = tonumber(ARGV[6]), #ARGV - 8
if limit > 0 then count = math.max(math.min(count, limit - fired), 0) end
local refused = lacking(KEYS[1], 'ZADD', 'ZREM') or lacking(KEYS[2], 'HSET', 'HDEL')
if refused then return refused end
for i = 1, count do
  local row = {'d', ARGV[8 + i]}
  if ARGV[8] ~= '' then row[3], row[4] = 'n', ARGV[8] end
  redis.call('XADD', KEYS[3], '*', unpack(row))
end
if ARGV[5] == '' or limit > 0 and fired + count >= limit then
  redis.call('DEL', KEYS[2])
  redis.call('ZREM', KEYS[1], ARGV[2])
  return {count, 1}
end
-- First of what follows: a window that was fired and still looks due would be fired again.
redis.call('ZADD', KEYS[1], ARGV[5], ARGV[2])
if count > 0 then redis.call('HSET', KEYS[2], 'fired', string.format('%.0f', fired + count)) end
if ARGV[7] ~= '' then
  redis.call('HSET', KEYS[2], 'catchup', ARGV[7])
else
  redis.call('HDEL', KEYS[2], 'catchup')
end
return {count, 0}
