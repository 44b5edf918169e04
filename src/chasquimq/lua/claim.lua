-- Take over entries whose consumer has been silent, unless we come too late or in a pause.
--
-- KEYS     1 stream      2 there while the queue is paused (left out by who may not look)
-- ARGV     1 group       2 consumer      3 idle at least, ms; 'own': of our own only
--          4 not after, ms by the server's clock      5... entry ids
-- Returns  rows {entry id, fields, idle ms, deliveries before this one}

-- Asked without raising: who may not look works on.
if KEYS[2] and redis.pcall('EXISTS', KEYS[2]) == 1 then
  return {}
end
-- On a server that was frozen the entries of living consumers look silent, too.
local now = redis.call('TIME')
if now[1] * 1000 + math.floor(now[2] / 1000) > tonumber(ARGV[4]) then
  return {}
end
local own, idle, taken = ARGV[3] == 'own', tonumber(ARGV[3]) or 0, {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
  -- XCLAIM drops an entry whose body is gone, but whoever holds it may still have the job in
  -- memory and move it. If that one is dead, the janitor removes the entry.
  local ours = row and row[3] >= idle and (not own or row[2] == ARGV[2])
  if ours and redis.call('XRANGE', KEYS[1], id, id)[1] then
    local got = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], idle, id)[1]
    taken[#taken + 1] = {id, got[2], row[3], row[4]}
  end
end
return taken
