-- How many jobs of queues are waiting, delayed or in progress.
--
-- KEYS     the beginnings of the queues' keys
-- Returns  their number

local left = 0
for _, queue in ipairs(KEYS) do
  local stream = queue .. ':stream'
  left = left + redis.call('XLEN', stream) + redis.call('ZCARD', queue .. ':delayed')
  left = left + redis.call('XPENDING', stream, 'default')[1]
end
return left
