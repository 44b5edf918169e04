-- Say which of the commands that a write needs the user may not run, before any of them is.
--
-- KEYS     1 a key of the queue
-- ARGV     two per command: its name, how many arguments follow the key
-- Returns  the names of those that are refused

local refused = {}
for i = 1, #ARGV, 2 do
  local command = {ARGV[i], KEYS[1]}
  for _ = 1, tonumber(ARGV[i + 1]) do command[#command + 1] = '1' end
  if not redis.acl_check_cmd(unpack(command)) then refused[#refused + 1] = ARGV[i] end
end
return refused
