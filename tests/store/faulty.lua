-- Put in front of a script: its NTH command fails, as if Redis had refused it.

local real, calls = redis, 0
local function fails()
  calls = calls + 1
  if calls == NTH then real.call('SET', 'INJECTED', '1') end
  return calls == NTH
end
local redis = setmetatable({
  call = function(...)
    if fails() then error({err = 'ERR injected fault'}) end
    return real.call(...)
  end,
  pcall = function(...)
    if fails() then return {err = 'ERR injected fault'} end
    return real.pcall(...)
  end,
}, {__index = real})
