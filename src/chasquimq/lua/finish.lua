#!lua flags=allow-oom
-- Keep a job's result and ack its entry, if it is still ours.
--
-- KEYS     1 stream      2 result
-- ARGV     1 group       2 consumer      3 entry id      4 result lives, s      5 result
-- Returns  1 done, 0 no longer ours

local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then
  return 0
end
-- Allowed without memory to spare: an ack frees more than most results take.
redis.call('SET', KEYS[2], ARGV[5], 'EX', ARGV[4])
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
return 1
