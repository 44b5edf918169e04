#!lua flags=no-writes
-- Cut a sorted set into parts of about as many members.
--
-- KEYS     1 sorted set
-- ARGV     1 how many parts      2 behind this score, '' from the first      3 up to this score, '' to
--          the last      4 so many bytes of a member are enough to cut at
-- Returns  where each part ends, {score, member} as lua/spark_delayed.lua takes them

local low = ARGV[2] == '' and 0 or redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[2])
local high = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[3] == '' and '+inf' or ARGV[3])
local ends, parts = {}, math.min(tonumber(ARGV[1]), high - low)
for i = 1, parts do
  local rank = low + math.floor((high - low) * i / parts) - 1
  local member, score = unpack(redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES'))
  ends[i] = {score, i < parts and '=' .. string.sub(member, 1, ARGV[4]) or ''}
end
return ends
