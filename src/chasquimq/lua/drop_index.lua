#!lua flags=allow-oom
-- Remove a side-index that leads to no delayed job.
--
-- KEYS     1 delayed set      2 side-index
-- ARGV     1 job id      2 look at so many members of one score at the most
-- Returns  1 removed, 0 it leads to a job, may do so, or is gone

local index = redis.call('GET', KEYS[2])
if not index then return 0 end
local score, front = string.match(index, '^(%d%d%d%d+) (.*)$')
if not score then -- a copy of the member
  if redis.call('ZSCORE', KEYS[1], index) then return 0 end
else
  local most, wanted = tonumber(ARGV[2]), front .. ARGV[1]
  local page = redis.call('ZRANGEBYSCORE', KEYS[1], score, score, 'LIMIT', 0, most)
  for _, member in ipairs(page) do
    if string.sub(member, 1, #wanted) == wanted then return 0 end
  end
  if #page == most then return 0 end
end
return redis.call('DEL', KEYS[2])
