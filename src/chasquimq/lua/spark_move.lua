-- Move the first chunk of a stage into its queue, if the run has a manifest.
--
-- With     part_spark_row
-- With     part_spark_check
-- With     part_spark_rate
-- KEYS     1 run      2 stage      3 stream
-- ARGV     1 the stream holds no more than this      2 about so many events are kept, 0: not told
--          3 rows per second that the run may add, 0: no limit
-- Returns  {rows moved, -1 no room now, -2 not yet; rows left in the stage; the stream's length;
--           of -2 ms until its turn}

local tag, length = string.sub(KEYS[3], 1, -7), redis.call('XLEN', KEYS[3])
local first = redis.call('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)[1]
if not first or redis.call('HGET', KEYS[1], 'state') ~= 'moving' then return {0, 0, length} end
local chunk = string.match(first[1], '^%d+')
local rows, wanted, fresh = redis.call('XRANGE', KEYS[2], chunk, chunk), 0, {}
redis.call('ZCARD', tag .. 'delayed') -- a key of a wrong type is found before anything is written
local staged = redis.call('XLEN', KEYS[2])
check_counts(KEYS[1], 'moved', 'rows', 'skipped')
for _, row in ipairs(rows) do
  local due, own = row[2][6] or '', row[2][8] or ''
  if enters(due) then wanted = wanted + 1 end
  if not taken(tag, due, own) then fresh[#fresh + 1] = {row[2][2], row[2][4] or '', due, own} end
end
-- While the slot moves to another node, keys that are not there are refused: all or none.
if wanted < #rows then redis.call('EXISTS', tag .. 'spark:nowhere') end
if wanted > 0 and length + wanted > tonumber(ARGV[1]) then
  return {-1, staged, length}
end
local wait, noted, turn = too_soon(KEYS[1], #rows, ARGV[3])
local left, minid = staged - #rows, string.format('%.0f', chunk + 1)
if noted then redis.call('HSET', KEYS[1], noted, turn) end
if wait > 0 then return {-2, staged, length, wait} end
for _, row in ipairs(fresh) do add_row(tag, row[1], row[2], row[3], row[4], ARGV[2]) end
wake(tag)
redis.call('HINCRBY', KEYS[1], 'moved', #rows)
redis.call('HINCRBY', KEYS[1], 'rows', #fresh)
redis.call('HINCRBY', KEYS[1], 'skipped', #rows - #fresh)
redis.call('XTRIM', KEYS[2], 'MINID', '=', minid)
if left == 0 then redis.call('DEL', KEYS[2]) end
return {#rows, left, length + wanted}
