-- Add those rows of a chunk whose ids are new: each id that came in has a marker.
--
-- With     part_spark_row
-- With     part_spark_check
-- With     part_spark_rate
-- KEYS     1 stream      2 run
-- ARGV     1 markers live, ms      2 the stream holds no more than this      3 about so many events
--          are kept, 0: not told      4 rows per second that the run may add, 0: no limit
--          5 the field of the run that counts this attempt's chunks
--          6... four per row: envelope, name, due, id
-- Returns  {1 all are in, 0 the run is done, -1 no room now, -3 the run is gone, -4 not yet; the
--           stream's length; room it needs; of -4 ms until its turn, of 1 how many it has counted}

local tag, length = string.sub(KEYS[1], 1, -7), redis.call('XLEN', KEYS[1])
local state = redis.call('HGET', KEYS[2], 'state')
if state == 'done' then return {0, length, 0} end
if not state then return {-3, length, 0} end
-- All keys are read before any is written: one of a wrong type must not leave half a chunk.
redis.call('ZCARD', tag .. 'delayed')
local keys, fresh, seen, wanted, added = {}, {}, {}, 0, {}
for i = 6, #ARGV, 4 do keys[#keys + 1] = tag .. 'spark:id:' .. ARGV[i + 3] end
for n, known in ipairs(redis.call('MGET', unpack(keys))) do
  if not known and not seen[keys[n]] then
    seen[keys[n]], fresh[#fresh + 1] = true, n
    if enters(ARGV[n * 4 + 4]) then wanted = wanted + 1 end
  end
end
if wanted > 0 and length + wanted > tonumber(ARGV[2]) then return {-1, length, wanted} end
check_counts(KEYS[2], 'rows', ARGV[5])
for _, n in ipairs(fresh) do
  if not taken(tag, ARGV[n * 4 + 4], ARGV[n * 4 + 5]) then added[#added + 1] = n end
end
local wait, noted, turn = too_soon(KEYS[2], #fresh, ARGV[4])
if noted then redis.call('HSET', KEYS[2], noted, turn) end
if wait > 0 then return {-4, length, wanted, wait} end
for _, n in ipairs(added) do
  local i = n * 4 + 2
  add_row(tag, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[3])
end
for _, n in ipairs(fresh) do redis.call('SET', keys[n], '1', 'PX', ARGV[1]) end
wake(tag)
redis.call('HINCRBY', KEYS[2], 'rows', #added)
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return {1, length + wanted, wanted, redis.call('HINCRBY', KEYS[2], ARGV[5], 1)}
