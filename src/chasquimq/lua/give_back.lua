-- Give back entries that we hold but did not run, so that others can run them now.
--
-- With     part_lacking
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3... pairs: entry id, deliveries before ours
-- Returns  {how many were given back, then the ids of ours that cannot be: their body is gone}

local refused = lacking(KEYS[1], 'XACK', 'XDEL')
if refused then return refused end
local reply = {0}
for i = 3, #ARGV, 2 do -- each row: read, then write
  local id, before = ARGV[i], ARGV[i + 1]
  local held = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)
  if #held == 1 and held[1][2] == ARGV[2] then
    local entry = redis.call('XRANGE', KEYS[1], id, id)[1]
    if not entry then
      reply[#reply + 1] = id
    elseif before == '0' and #entry[2] < 7000 then -- Lua cannot pass on as many values as Redis takes
      -- A copy wakes blocked readers at once and charges nobody; making a pending entry look
      -- idle would do neither.
      redis.call('XADD', KEYS[1], '*', unpack(entry[2]))
      redis.call('XACK', KEYS[1], ARGV[1], id)
      redis.call('XDEL', KEYS[1], id)
    else
      -- It has crashed someone before: its count must survive, so it stays, up for claiming.
      redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, id, 'IDLE', 2147483647, 'RETRYCOUNT', before, 'JUSTID')
    end
    reply[1] = reply[1] + (entry and 1 or 0)
  end
end
return reply
