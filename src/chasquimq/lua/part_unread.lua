-- Tell whether a job was removed before any worker had it.
--
--   removed_unread(stream, id)     id: of its entry
--
-- Returns  of removed_unread: true if the entry is gone and no group was given it, or the whole stream
--          is gone; false also where that cannot be seen

local function earlier(one, other)
  local ms, seq = string.match(one, '^(%d+)-(%d+)$')
  local than_ms, than_seq = string.match(other, '^(%d+)-(%d+)$')
  if ms ~= than_ms then
    return #ms < #than_ms or #ms == #than_ms and ms < than_ms
  end
  return #seq < #than_seq or #seq == #than_seq and seq < than_seq
end

local function removed_unread(stream, id)
  local there = redis.pcall('XRANGE', stream, id, id)
  local groups = redis.pcall('XINFO', 'GROUPS', stream)
  if there.err or groups.err or #there > 0 then
    return not there.err and groups.err ~= nil and string.find(groups.err, 'no such key') ~= nil
  end
  for _, row in ipairs(groups) do
    for at = 1, #row, 2 do
      if row[at] == 'last-delivered-id' and not earlier(row[at + 1], id) then
        return false
      end
    end
  end
  return true
end

