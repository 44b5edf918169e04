-- Take a consumer's name off the group, unless something is still pending under it.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer
-- Returns  1 removed, 0 it still holds something

if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
  return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
