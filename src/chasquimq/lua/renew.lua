-- Keep our hold on entries: reset their idle clocks, leave their counts alone.
--
-- In the same call our record of what we have started is written, for workers that find us dead.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer      3 let be what has been idle for less, ms
--          4 the hash with what each consumer has started      5 our record there, '' to leave it
--          6... entry ids
-- Returns  {how many of the ids were looked at, then those that are no longer ours}

local idle, keep, reply, bytes, whole = {}, {}, {0}, 0, false
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100000, ARGV[2])) do
  idle[row[1]] = row[3]
end
-- Every entry is pending or unread, because acks delete. While that adds up no body is missing,
-- and none need be looked at, which would copy it.
for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local told = {}
  for i = 1, #row, 2 do
    told[row[i]] = row[i + 1]
  end
  if told.name == ARGV[1] and told.lag then
    whole = told.pending + told.lag == redis.call('XLEN', KEYS[1])
  end
end
local young = tonumber(ARGV[3])
for i = 6, #ARGV do
  local id = ARGV[i]
  if not idle[id] then
    reply[#reply + 1] = id
  elseif idle[id] >= young then
    -- XCLAIM drops an entry whose body is gone, and then its job could not be moved from memory
    -- any more. In its place goes an id that cannot be, which tells the server that we live.
    local entry = whole and {} or redis.call('XRANGE', KEYS[1], id, id)[1]
    keep[#keep + 1] = entry and id or '0-0'
    for _, part in ipairs(entry and entry[2] or {}) do
      bytes = bytes + #part
    end
  end
  reply[1] = i - 5
  if bytes > 4000000 then -- not too many bodies in one go
    break
  end
end
if #keep > 0 then
  keep[#keep + 1] = 'JUSTID'
  redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], 0, unpack(keep))
end
-- No key of ours, and written without raising: a lease is worth more than its record, without which
-- all that we hold counts as started.
if ARGV[5] ~= '' then
  redis.pcall('HSET', ARGV[4], ARGV[2], ARGV[5])
end
return reply
