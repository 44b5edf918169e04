-- Put an exported row back into the DLQ, once; what still lies there is not doubled.
--
-- KEYS     1 dlq      2 marker
-- ARGV     1 marker lives, s, 0 only look      2 the id that the row had      3... fields
-- Returns  1 put back (or would be), 0 it is there, or was put back before

if redis.call('EXISTS', KEYS[2]) == 1 then
  return 0
end
local there = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
-- Another server may have given the same id to something else.
local same = there ~= nil and #there[2] == #ARGV - 2
for i = 1, same and #there[2] or 0 do
  same = same and there[2][i] == ARGV[i + 2]
end
if same then
  return 0
end
if ARGV[1] ~= '0' then
  local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, 3))
  -- The marker comes second: memory that runs out between the two must not leave it alone.
  redis.call('SET', KEYS[2], id, 'EX', ARGV[1])
end
return 1
