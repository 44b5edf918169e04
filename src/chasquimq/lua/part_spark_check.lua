-- Find out before rows of Spark are written whether all of it can be done.
--
-- Behind part_spark_row, in front of which it asks:
--
--   taken(tag, due, own)     whether a job with this id is scheduled already, by this write as well
--   check_counts(run, ...)   raises if a field of the run cannot be counted up
--
-- Returns  of taken: true or false

local scheduled = {}

local function taken(tag, due, own)
  if own == '' or enters(due) then return false end
  local known = scheduled[own] or redis.call('EXISTS', tag .. 'dlid:' .. own) == 1
  scheduled[own] = true
  return known
end

local function check_counts(run, ...)
  for _, count in ipairs(redis.call('HMGET', run, ...)) do
    if count and (#count > 15 or not string.find(count, '^%d+$')) then
      error({err = 'ERR a count of ' .. run .. ' is not a number; remove the field'})
    end
  end
end
