-- Add a chunk of a partition, unless it is in: the marker has a digest of each chunk that is.
--
-- KEYS     1 stream      2 run      3 the partition's marker
-- ARGV     1 number of the chunk      2 its digest, 16 bytes      3 markers live, ms
--          4 the stream holds no more than this      5... two per row: envelope, name
-- Returns  {1 added, 0 it was in, -1 no room now, -2 another chunk of this number is in,
--           -3 the one before it is missing; the stream's length}

local number, rows = tonumber(ARGV[1]), (#ARGV - 4) / 2
local length = redis.call('XLEN', KEYS[1])
local known = redis.call('STRLEN', KEYS[3]) / 16
if redis.call('HGET', KEYS[2], 'state') == 'done' then return {0, length} end
if number < known then
  local digest = redis.call('GETRANGE', KEYS[3], number * 16, number * 16 + 15)
  return {digest == ARGV[2] and 0 or -2, length}
end
if number > known then return {-3, length} end
if length + rows > tonumber(ARGV[4]) then return {-1, length} end
for i = 5, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('XADD', KEYS[1], '*', 'd', ARGV[i])
  else
    redis.call('XADD', KEYS[1], '*', 'd', ARGV[i], 'n', ARGV[i + 1])
  end
end
redis.call('APPEND', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
redis.call('HINCRBY', KEYS[2], 'rows', rows)
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1, length + rows}
