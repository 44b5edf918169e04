#!lua flags=allow-oom
-- Keep the results of jobs and ack their entries, of those that are still ours.
--
-- KEYS     1 stream      2... results
-- ARGV     1 group       2 consumer      3 results live, s
--          then two per result: entry id, result
-- Returns  how many were ours

-- Most lie between the first and the last, with few others: one question for all of them. Whoever
-- is not in the answer is asked for by itself.
local first, last, most = ARGV[4], ARGV[#ARGV - 1], 2 * #KEYS
local held = {}
for _, row in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], first, last, most, ARGV[2])) do
  held[row[1]] = true
end
local ours = {}
for i = 2, #KEYS do
  local id = ARGV[2 * i]
  if not held[id] then
    local row = redis.call('XPENDING', KEYS[1], ARGV[1], id, id, 1)[1]
    held[id] = row and row[2] == ARGV[2]
  end
  if held[id] then ours[#ours + 1] = id end
end
for i = 2, #KEYS do
  -- Allowed without memory to spare: an ack frees more than most results take.
  if held[ARGV[2 * i]] then redis.call('SET', KEYS[i], ARGV[2 * i + 1], 'EX', ARGV[3]) end
end
local acked = 0
for at = 1, #ours, 1000 do -- Lua cannot pass on as many values at once as Redis takes
  local ids = {unpack(ours, at, math.min(at + 999, #ours))}
  acked = acked + redis.call('XACK', KEYS[1], ARGV[1], unpack(ids))
  redis.call('XDEL', KEYS[1], unpack(ids))
end
return acked
