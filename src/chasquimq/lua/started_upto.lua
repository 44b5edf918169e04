-- Write down up to where a silent consumer had started what it held, before others claim of it.
--
-- Slots start jobs in the order of delivery, so what was started is among the first that are left.
--
-- KEYS     1 stream      2 what each consumer had started when it last renewed its leases
-- ARGV     1 group       2 consumer      3 its record, as it was seen      4 how many of the first
--          have been started if its acks were written      5 and if they were not
--          6 what comes in front of the entry ids in its new record      7 and what comes behind them
-- Returns  {the last entry of either kind}; nothing if its record is another by now, or it holds
--          nothing any more

if redis.call('HMGET', KEYS[2], ARGV[2])[1] ~= ARGV[3] then
  return false
end
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[5], ARGV[2])
if #rows == 0 then
  return false
end
local likely, possible = rows[math.min(tonumber(ARGV[4]), #rows)][1], rows[#rows][1]
redis.call('HSET', KEYS[2], ARGV[2], ARGV[6] .. likely .. ' ' .. possible .. ARGV[7])
return {likely, possible}
