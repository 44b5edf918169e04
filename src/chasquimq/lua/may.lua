-- Say which of some commands the user may not run, before any of them is.
--
-- KEYS     1 a key of the queue
-- ARGV     two per command: its name, as XADD or XINFO|GROUPS; how many arguments follow the key,
--          -1 it takes none
-- Returns  the names of those that are refused

local refused = {}
for i = 1, #ARGV, 2 do
  local command = {}
  for word in string.gmatch(ARGV[i], '[^|]+') do command[#command + 1] = word end
  if tonumber(ARGV[i + 1]) >= 0 then command[#command + 1] = KEYS[1] end
  for _ = 1, tonumber(ARGV[i + 1]) do command[#command + 1] = '1' end
  if not redis.acl_check_cmd(unpack(command)) then refused[#refused + 1] = ARGV[i] end
end
return refused
