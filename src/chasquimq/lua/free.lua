#!lua flags=allow-oom
-- Ack the entry of a job whose id was unique until it is done, if it is ours: the id is free again.
--
-- KEYS     1 stream      2 marker      3 result, if one is kept
-- ARGV     1 group       2 consumer      3 entry id      4 when the job was created, ms
--          5 for those who add it again it is remembered, s      6 result lives, s      7 result
-- Returns  1 done, 0 no longer ours

local held = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)
if #held == 0 or held[1][2] ~= ARGV[2] then
  return 0
end
local marker = redis.pcall('GET', KEYS[2])
if type(marker) == 'table' and not string.find(marker.err, '^WRONGTYPE') then return marker end
-- The marker may have expired, and another job may have it now. Written last, so that there are
-- never two.
local mine = type(marker) == 'string' and string.match(marker, '^%d+') == ARGV[4]
-- Allowed without memory to spare: an ack frees more than this takes.
if KEYS[3] then
  redis.call('SET', KEYS[3], ARGV[7], 'EX', ARGV[6])
end
redis.call('XACK', KEYS[1], ARGV[1], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[3])
if mine then
  redis.call('SET', KEYS[2], '-' .. marker, 'EX', ARGV[5])
end
return 1
