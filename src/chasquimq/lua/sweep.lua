-- Remove pending entries without a body, and names, of consumers that have long been silent.
--
-- KEYS     1 stream      2 the leader's lock; without it: whoever asks, as a person told them to
-- ARGV     1 group       2 consumer, who must hold the lock
--          3 entries: idle for at least, ms      4 names: idle for longer than, ms
--          5 look at entries behind this one, '-' from the first      6 at so many at the most
--          7 remove so many names at the most      8 the hash with what each consumer had started
-- Returns  {-1} another leads, else {entries removed, names removed, the entry to look behind
--          next, '-' when all were looked at}

if KEYS[2] and redis.call('GET', KEYS[2]) ~= ARGV[2] then
  return {-1}
end
local silent, names, bare, bytes, behind = {}, {}, {}, 0, nil
for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local told = {} -- by name: servers differ in what they tell, and where
  for i = 1, #row, 2 do
    told[row[i]] = row[i + 1]
  end
  if told.name ~= ARGV[2] then
    silent[told.name] = told.idle >= tonumber(ARGV[3])
    -- What is pending under a name that is removed can never be delivered again.
    if told.pending == 0 and told.idle > tonumber(ARGV[4]) and #names < tonumber(ARGV[7]) then
      names[#names + 1] = told.name
    end
  end
end
local from = ARGV[5] == '-' and '-' or '(' .. ARGV[5]
local last = '18446744073709551615-18446744073709551615' -- Redis refuses to look behind it
local page = ARGV[5] == last and {} or redis.call('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[3], from, '+', ARGV[6])
for _, row in ipairs(page) do
  -- Whoever is alive may still run a job whose body was trimmed, and move it from memory.
  if silent[row[2]] then
    local entry = redis.call('XRANGE', KEYS[1], row[1], row[1])[1]
    for _, part in ipairs(entry and entry[2] or {}) do
      bytes = bytes + #part
    end
    if not entry then bare[#bare + 1] = row[1] end
    if bytes > 4000000 then -- looking copies the bodies: not too many of them in one go
      behind = row[1]
      break
    end
  end
end
behind = behind or #page == tonumber(ARGV[6]) and page[#page][1] or '-'
for _, name in ipairs(names) do
  redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], name)
  redis.pcall('HDEL', ARGV[8], name)
end
for _, id in ipairs(bare) do redis.call('XACK', KEYS[1], ARGV[1], id) end
return {#bare, #names, behind}
