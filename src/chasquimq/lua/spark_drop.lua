-- Drop stages that no manifest names: those of a run that is given up, or done.
--
-- KEYS     1 run      2 its stages
-- ARGV     1 so many at the most
-- Returns  how many are left, -1 the run has a manifest, or stages nothing

local told = redis.call('HMGET', KEYS[1], 'state', 'mode')
if told[1] == 'moving' or told[2] and told[2] ~= 'staged' then return -1 end
local left = redis.call('SCARD', KEYS[2])
for _, stage in ipairs(redis.call('SPOP', KEYS[2], ARGV[1])) do
  redis.call('UNLINK', stage)
  left = left - 1
end
if left == 0 and told[1] == 'open' then
  redis.call('DEL', KEYS[1])
end
return left
