-- Put back what a silent consumer had only read ahead: as new entries, which charges nobody.
--
-- With     part_lacking
-- KEYS     1 stream
-- ARGV     1 group       2 the consumer      3 idle at least, ms
--          4 not after, ms by the server's clock      5... entry ids
-- Returns  the ids of those that were put back

-- On a server that was frozen the entries of living consumers look silent, too.
local now = redis.call('TIME')
if now[1] * 1000 + math.floor(now[2] / 1000) > tonumber(ARGV[4]) then
  return {}
end
local refused = lacking(KEYS[1], 'XACK', 'XDEL')
if refused then return refused end
local moved = {}
for i = 5, #ARGV do -- each row: read, then write
  local id = ARGV[i]
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  -- A second delivery is one that somebody has started.
  local left = row and row[2] == ARGV[2] and row[3] >= tonumber(ARGV[3]) and row[4] == 1
  local entry = left and redis.call('XRANGE', KEYS[1], id, id)[1]
  if entry and #entry[2] < 7000 then -- Lua cannot pass on more
    redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
    redis.call('XACK', KEYS[1], ARGV[1], id)
    redis.call('XDEL', KEYS[1], id)
    moved[#moved + 1] = id
  end
end
return moved
