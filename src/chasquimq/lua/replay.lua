-- Bring dead jobs back to the stream. The dlq entry is its own marker: gone means done.
--
-- KEYS     1 dlq      2 stream
-- ARGV     triples: dlq id, envelope, name
-- Returns  how many were moved

local moved = 0
for i = 1, #ARGV, 3 do
  if #redis.call('XRANGE', KEYS[1], ARGV[i], ARGV[i]) == 1 then
    if ARGV[i + 2] == '' then
      redis.call('XADD', KEYS[2], '*', 'd', ARGV[i + 1])
    else
      redis.call('XADD', KEYS[2], '*', 'd', ARGV[i + 1], 'n', ARGV[i + 2])
    end
    redis.call('XDEL', KEYS[1], ARGV[i])
    moved = moved + 1
  end
end
return moved
