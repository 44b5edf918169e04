-- Bring dead jobs back to the stream. The dlq entry is its own marker: gone means done.
--
--   see_dead(dlq, id, marker, holder)     asked of all before the first is brought back
--       marker, holder     if its id was unique until it is done, which it is again: the marker and
--                          what to write into it; else '' and ''
--   revive(dlq, stream, id, envelope, name, marker, holder)
--
-- Returns  of see_dead: 1 it can be brought back, 0 it is gone, -1 it stays because a living job
--          has its id, or its marker is of another type

local seen = {}

local function see_dead(dlq, id, marker, holder)
  if seen[id] or #redis.call('XRANGE', dlq, id, id) == 0 then return 0 end
  if holder ~= '' then
    local known = redis.pcall('GET', marker)
    if type(known) == 'table' and not string.find(known.err, '^WRONGTYPE') then error(known) end
    if type(known) == 'table' or seen[marker] then return -1 end
    if known and string.sub(known, 1, 1) ~= '-' then return -1 end
    seen[marker] = true
  end
  seen[id] = true
  return 1
end

local function revive(dlq, stream, id, envelope, name, marker, holder)
  local limit = string.match(holder, '^%d+ (%d+)')
  local row = {'d', envelope, 'n', name, 'u', limit}
  redis.call('XADD', stream, '*', unpack(row, 1, limit and 6 or name ~= '' and 4 or 2))
  if limit then redis.call('SET', marker, holder, 'EX', limit) end
  redis.call('XDEL', dlq, id)
end
