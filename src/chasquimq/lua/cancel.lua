-- Take a delayed job back before it is due.
--
-- With     part_find
-- KEYS     1 delayed set      2 side-index      3 marker      4 marker of an id unique until done
-- ARGV     1 job id      2 for those who add it again it is remembered, s
-- Returns  1 cancelled, 0 unknown or already promoted

local index = redis.call('GET', KEYS[2])
local member = index and find(KEYS[1], index, ARGV[1])
local marker = redis.pcall('GET', KEYS[4])
if type(marker) == 'table' and not string.find(marker.err, '^WRONGTYPE') then return marker end
local created = string.match(type(marker) == 'string' and marker or '', '^%d+')
local mine = created and member and string.find(member, struct.pack('>I8', created), 1, true)
if not member or redis.call('ZREM', KEYS[1], member) == 0 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
if mine then redis.call('SET', KEYS[4], '-' .. marker, 'EX', ARGV[2]) end
return 1
