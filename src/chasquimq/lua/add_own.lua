-- Add a job whose id must come in only once, unless it was removed unread, where XADD has IDMP.
--
-- A job that comes in again is remembered under its id and the entry that is gone.
--
-- With     part_unread
-- KEYS     1 stream
-- ARGV     1 producer id      2 job id      3 trim the stream to about this, 0 never      4... fields
-- Returns  1 added, 2 it came in before

local before = redis.call('XLEN', KEYS[1])
local function add(producer, iid)
  local id = redis.call('XADD', KEYS[1], 'IDMP', producer, iid, '*', unpack(ARGV, 4))
  return id, redis.pcall('XLEN', KEYS[1]) ~= before
end

local id, added = add(ARGV[1], ARGV[2])
for _ = 1, 1000 do
  if added or not removed_unread(KEYS[1], id) then
    break
  end
  id, added = add(ARGV[1] .. ':again', ARGV[2] .. '#' .. id)
end
if added and ARGV[3] ~= '0' then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[3])
end
return added and 1 or 2
