-- Bring one dead job back to the stream. The dlq entry is its own marker: gone means done.
--
--   revive(dlq, stream, id, envelope, name, marker, holder)
--       marker, holder     if its id was unique until it is done, which it is again: the marker and
--                          what to write into it; else '' and ''
--
-- Returns  of revive: 1 moved, 0 it is gone, -1 it stays because a living job has its id

local function revive(dlq, stream, id, envelope, name, marker, holder)
  if #redis.call('XRANGE', dlq, id, id) == 0 then return 0 end
  local limit = string.match(holder, '^%d+ (%d+)')
  local known = limit and redis.call('GET', marker)
  if known and string.sub(known, 1, 1) ~= '-' then return -1 end
  local row = {'d', envelope, 'n', name, 'u', limit}
  redis.call('XADD', stream, '*', unpack(row, 1, limit and 6 or name ~= '' and 4 or 2))
  if limit then redis.call('SET', marker, holder, 'EX', limit) end
  redis.call('XDEL', dlq, id)
  return 1
end
