-- Bring dead jobs back to the stream. The dlq entry is its own marker: gone means done.
--
-- KEYS     1 dlq      2 stream
-- ARGV     five per job: dlq id, envelope, name; and if its id was unique until it is done, which it
--          is again, the marker and what to write into it, else '' and ''
-- Returns  {how many were moved, how many stay because living jobs have their ids}

local moved, taken = 0, 0
for i = 1, #ARGV, 5 do
  local id, envelope, name, marker, holder = unpack(ARGV, i, i + 4)
  local limit, known = string.match(holder, '^%d+ (%d+)'), nil
  if #redis.call('XRANGE', KEYS[1], id, id) == 1 then
    known = limit and redis.call('GET', marker)
    if known and string.sub(known, 1, 1) ~= '-' then
      taken = taken + 1
    else
      local row = {'d', envelope, 'n', name, 'u', limit}
      redis.call('XADD', KEYS[2], '*', unpack(row, 1, limit and 6 or name ~= '' and 4 or 2))
      if limit then
        redis.call('SET', marker, holder, 'EX', limit)
      end
      redis.call('XDEL', KEYS[1], id)
      moved = moved + 1
    end
  end
end
return {moved, taken}
