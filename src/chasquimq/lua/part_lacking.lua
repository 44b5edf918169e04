-- Tell what our user may not do of what follows a first write, which Lua would not take back.
--
--   lacking(key, ...)     names of commands that take the key and one word, or more
--
-- Returns  of lacking: an error that names the first one that is refused; nil where none is

local function lacking(key, ...)
  for _, name in ipairs({...}) do
    if not redis.acl_check_cmd(name, key, '1', '1') then
      return {err = 'NOPERM the user may not run ' .. name .. ' on this key; nothing was written'}
    end
  end
end

