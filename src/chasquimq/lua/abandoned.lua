#!lua flags=no-writes
-- List what silent consumers have left pending, and what is known of what they had started.
--
-- KEYS     1 stream
-- ARGV     1 group       2 idle at least, ms      3 look behind this entry, '-' from the first
--          4 and up to this one, '+' to the last      5 at this many at most
--          6 the hash with what each consumer had started when it last renewed its leases
--          7 of this consumer only, if given
-- Returns  {the entry to look behind next, '-' after the last, pairs of consumer and its record,
--           then per entry {entry id, consumer, idle ms, deliveries}}. One whose body is gone is
--           left out, or has -1 deliveries where a consumer was given

local from = ARGV[3] == '-' and '-' or '(' .. ARGV[3]
local ask = {KEYS[1], ARGV[1], 'IDLE', ARGV[2], from, ARGV[4], ARGV[5], ARGV[7]}
local page = redis.call('XPENDING', unpack(ask))
local reply, seen, bytes = {'-', {}}, {}, 0
for at, row in ipairs(page) do
  local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
  if not entry then row[4] = -1 end
  if entry or ARGV[7] then reply[#reply + 1] = row end
  if entry and not seen[row[2]] then
    seen[row[2]] = true
    -- No key of ours, and asked without raising: who may not read it works on. Without a record
    -- all that a consumer held may have been started.
    local told = redis.pcall('HMGET', ARGV[6], row[2])
    if told[1] then
      reply[2][#reply[2] + 1], reply[2][#reply[2] + 2] = row[2], told[1]
    end
  end
  for _, part in ipairs(entry and entry[2] or {}) do bytes = bytes + #part end
  -- Looking copies the bodies: not too many of them in one go.
  if bytes > 4000000 and at < #page or at == tonumber(ARGV[5]) then
    reply[1] = row[1]
    break
  end
end
-- Nothing lies behind the last id that there can be, and asking for it is an error.
if reply[1] == '18446744073709551615-18446744073709551615' then reply[1] = '-' end
return reply
