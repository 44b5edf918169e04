-- Take a delayed job back before it is due.
--
-- KEYS     1 delayed set      2 side-index      3 marker
-- Returns  1 cancelled, 0 unknown or already promoted

local member = redis.call('GET', KEYS[2])
if not member or redis.call('ZREM', KEYS[1], member) == 0 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
