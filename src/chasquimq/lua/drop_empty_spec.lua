#!lua flags=allow-oom
-- Remove what is left of a spec that has no recipe any more; one that has a recipe stays.
--
-- KEYS     1 specs      2 the spec's hash
-- ARGV     1 the spec's key
-- Returns  1 removed, 0 there is a recipe, something else lies there, or nothing is left

local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and (kind ~= 'hash' or redis.call('HEXISTS', KEYS[2], 'spec') == 1) then
  return 0
end
return math.max(redis.call('ZREM', KEYS[1], ARGV[1]), redis.call('DEL', KEYS[2]))
