-- Bring dead jobs back to the stream, those that still lie in the dlq.
--
-- With     part_revive
-- KEYS     1 dlq      2 stream
-- ARGV     five per job: dlq id, envelope, name; and if its id was unique until it is done, which it
--          is again, the marker and what to write into it, else '' and ''
-- Returns  {how many were moved, how many stay because living jobs have their ids}

local found, moved, taken = {}, 0, 0
for i = 1, #ARGV, 5 do found[i] = see_dead(KEYS[1], ARGV[i], ARGV[i + 3], ARGV[i + 4]) end
for i = 1, #ARGV, 5 do
  if found[i] == 1 then
    revive(KEYS[1], KEYS[2], unpack(ARGV, i, i + 4))
    moved = moved + 1
  elseif found[i] == -1 then
    taken = taken + 1
  end
end
return {moved, taken}
