-- Put in front of a script: its NTH command fails, as if Redis had refused it. The mark says how many
-- writes were done before it, how it was called, and which command it was.

local real, calls, wrote = redis, 0, 0
local writes = {}
for name in string.gmatch('WRITES', '%u+') do writes[name] = true end
local function fails(how, name)
  calls = calls + 1
  if calls == NTH then real.call('SET', 'INJECTED', wrote .. ' ' .. how .. ' ' .. name) end
  if writes[name] then wrote = wrote + 1 end
  return calls == NTH
end
local redis = setmetatable({
  call = function(name, ...)
    if fails('call', name) then error({err = 'ERR injected fault'}) end
    return real.call(name, ...)
  end,
  pcall = function(name, ...)
    if fails('pcall', name) then return {err = 'ERR injected fault'} end
    return real.pcall(name, ...)
  end,
}, {__index = real})
