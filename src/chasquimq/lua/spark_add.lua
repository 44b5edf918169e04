-- Add a chunk of a partition, unless it is in: the marker has a digest of each chunk that is.
--
-- With     part_spark_row
-- With     part_spark_check
-- With     part_spark_rate
-- KEYS     1 stream      2 run      3 the partition's marker
-- ARGV     1 number of the chunk      2 its digest, 16 bytes      3 markers live, ms
--          4 the stream holds no more than this      5 about so many events are kept, 0: not told
--          6 per row there are 2: envelope, name; or 4: due and the caller's own id as well
--          7 rows per second that the run may add, 0: no limit      8... the rows
-- Returns  {1 added, 0 it was in, -1 no room now, -2 another chunk of this number is in,
--           -3 those before it are unknown, or the run, -4 not yet; the stream's length; room it
--           needs; of -4 ms until its turn}

local number, width = tonumber(ARGV[1]), tonumber(ARGV[6])
-- All keys are read before any is written: one of a wrong type must not leave half a chunk.
local length, known = redis.call('XLEN', KEYS[1]), redis.call('STRLEN', KEYS[3]) / 16
-- The run counts chunks, too: it may live longer than a marker, whose rows would come in again.
local part = 'part:' .. string.match(KEYS[3], '%d+$')
local state, counted = unpack(redis.call('HMGET', KEYS[2], 'state', part))
if state == 'done' then return {0, length, 0} end
if not state or known ~= tonumber(counted or 0) then return {-3, length, 0} end
if number < known then
  local digest = redis.call('GETRANGE', KEYS[3], number * 16, number * 16 + 15)
  return {digest == ARGV[2] and 0 or -2, length, 0}
end
if number > known then return {-3, length, 0} end
local tag, rows, fresh = string.sub(KEYS[1], 1, -7), (#ARGV - 7) / width, {}
local wanted = rows
if width == 4 then
  -- While the slot moves to another node, keys that are not there are refused: all or none.
  redis.call('EXISTS', tag .. 'spark:nowhere')
  redis.call('ZCARD', tag .. 'delayed')
  for i = 10, #ARGV, 4 do if not enters(ARGV[i]) then wanted = wanted - 1 end end
end
if wanted > 0 and length + wanted > tonumber(ARGV[4]) then return {-1, length, wanted} end
check_counts(KEYS[2], part, 'rows', 'skipped')
for i = 8, #ARGV, width do
  if width == 2 or not taken(tag, ARGV[i + 2], ARGV[i + 3]) then fresh[#fresh + 1] = i end
end
local wait, noted, turn = too_soon(KEYS[2], rows, ARGV[7])
if noted then redis.call('HSET', KEYS[2], noted, turn) end
if wait > 0 then return {-4, length, wanted, wait} end
for _, i in ipairs(fresh) do
  add_row(tag, ARGV[i], ARGV[i + 1], width == 4 and ARGV[i + 2] or '', ARGV[i + 3], ARGV[5])
end
wake(tag)
redis.call('APPEND', KEYS[3], ARGV[2])
redis.call('PEXPIRE', KEYS[3], ARGV[3])
redis.call('HINCRBY', KEYS[2], part, 1)
redis.call('HINCRBY', KEYS[2], 'rows', #fresh)
redis.call('HINCRBY', KEYS[2], 'skipped', rows - #fresh)
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return {1, length + wanted, wanted}
