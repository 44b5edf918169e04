-- Take a consumer's name off the group, unless something that can run is still pending under it.
--
-- KEYS     1 stream
-- ARGV     1 group       2 consumer
-- Returns  1 removed, 0 it still holds something, -1 it held a page of entries without a body;
--          they are acked, ask again

local page, living, bare = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 100, ARGV[2]), 0, {}
for _, row in ipairs(page) do
  if redis.call('XRANGE', KEYS[1], row[1], row[1])[1] then
    living = living + 1
  else
    bare[#bare + 1] = row[1]
  end
end
if #bare > 0 then
  redis.call('XACK', KEYS[1], ARGV[1], unpack(bare))
end
if living > 0 then
  return 0
end
if #page == 100 then
  return -1
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
