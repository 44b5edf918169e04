-- Write down up to where a silent consumer had started what it held, before others claim of it.
--
-- Slots start jobs in the order of delivery, so what was started is among the first that are left.
--
-- KEYS     1 stream      2 what each consumer had started when it last renewed its leases
-- ARGV     1 group       2 consumer      3 its record, as it was seen      4 how many of the first
--          may have been started      5 what comes in front of the entry id in its new record
--          6 and what comes behind it
-- Returns  the last entry that may have been started; nothing if its record is another by now, or
--          it holds nothing any more

if redis.call('HMGET', KEYS[2], ARGV[2])[1] ~= ARGV[3] then
  return false
end
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[4], ARGV[2])
if #rows == 0 then
  return false
end
local last = rows[#rows][1]
redis.call('HSET', KEYS[2], ARGV[2], ARGV[5] .. last .. ARGV[6])
return last
