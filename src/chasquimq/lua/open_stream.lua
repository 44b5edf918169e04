-- Make sure the stream is there, with its settings if we create it, and the group if one is named.
--
-- KEYS     1 stream
-- ARGV     1 group or ''   2 IDMP-MAXSIZE, 0 where the server has none   3 IDMP-DURATION, s
--          4 '1': the group was lost while we ran, so set the stream up again
-- Returns  {1 stream was created, else 0; IDMP-MAXSIZE and IDMP-DURATION now in force, 0 without}

local group, fresh = ARGV[1], redis.call('EXISTS', KEYS[1]) == 0
local ids, seconds = tonumber(ARGV[2]), tonumber(ARGV[3])
local missing = fresh or group ~= ''
if missing and not fresh then
  -- Looked up rather than tried: a server out of memory refuses to create even what exists.
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    missing = missing and row[2] ~= group
  end
end
local info, told = ARGV[2] ~= '0' and not fresh and redis.call('XINFO', 'STREAM', KEYS[1]) or {}, {}
if missing then
  -- Only MKSTREAM makes an empty stream; a producer, who has no group, borrows one for that.
  redis.call('XGROUP', 'CREATE', KEYS[1], group ~= '' and group or 'chasqui', '0', 'MKSTREAM')
  if group == '' then
    redis.call('XGROUP', 'DESTROY', KEYS[1], 'chasqui')
  end
end
if ARGV[2] == '0' then
  return {fresh and 1 or 0, 0, 0}
end
-- Other values wipe what a live stream remembers, so a stream that others made keeps its own.
if fresh or (missing and ARGV[4] == '1') then
  local set = redis.pcall('XCFGSET', KEYS[1], 'IDMP-MAXSIZE', ARGV[2], 'IDMP-DURATION', ARGV[3])
  if not set.err then
    return {fresh and 1 or 0, ids, seconds}
  end
  -- Another server has just come, one without it, and the caller does not know yet.
  return string.find(set.err, 'nknown') and {fresh and 1 or 0, 0, 0} or set
end
for i = 1, #info, 2 do
  told[info[i]] = info[i + 1]
end
return {0, told['idmp-maxsize'] or 0, told['idmp-duration'] or 0}
