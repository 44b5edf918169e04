#!lua flags=no-writes
-- Count a queue's jobs by where they are.
--
-- KEYS     1 stream      2 delayed set      3 dlq      4 specs
-- ARGV     1 group
-- Returns  {waiting, running, delayed, dead, specs, ms that the next to run has waited or -1}

local group = {['last-delivered-id'] = '0-0', pending = 0}
local known = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XINFO', 'GROUPS', KEYS[1]) or {}
for _, row in ipairs(known) do
  local told = {} -- by name: servers differ in what they tell, and where
  for i = 1, #row, 2 do
    told[row[i]] = row[i + 1]
  end
  group = told.name == ARGV[1] and told or group
end
local length, read_to = redis.call('XLEN', KEYS[1]), group['last-delivered-id']
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
-- Without raising: behind the last id that there can be lies nothing, which Redis calls an error.
local coming = redis.pcall('XRANGE', KEYS[1], '(' .. read_to, '+', 'COUNT', 1)[1]
local waiting, age = coming and length or 0, -1
if coming and coming[1] ~= first[1] then
  -- In front of those that wait lie some that were delivered, usually all that are pending. Not if
  -- somebody deleted entries by hand, and then the server's own count is not to be trusted either.
  waiting = length - group.pending
  local from, seen, bytes, all = '-', 0, 0, group.lag == waiting
  while not all and seen < 1000 and bytes < 4000000 do -- looking copies bodies, so not for ever
    local page = redis.call('XRANGE', KEYS[1], from, read_to, 'COUNT', 10)
    for _, entry in ipairs(page) do
      from, seen = '(' .. entry[1], seen + 1
      for _, part in ipairs(entry[2]) do bytes = bytes + #part end
    end
    all = #page < 10
  end
  if seen > 0 then
    waiting = all and length - seen or math.max(math.min(group.lag or waiting, length - seen), 1)
  end
end
if coming then
  local now = redis.call('TIME')
  age = math.max(now[1] * 1000 + math.floor(now[2] / 1000) - string.match(coming[1], '^%d+'), 0)
end
return {waiting, group.pending, redis.call('ZCARD', KEYS[2]), redis.call('XLEN', KEYS[3]), redis.call('ZCARD', KEYS[4]), age}
