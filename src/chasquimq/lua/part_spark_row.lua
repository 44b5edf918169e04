-- Add rows of Spark to the queue whose keys begin with `tag`, as Queue.add would add them.
--
--   add_row(tag, envelope, name, due, own, told)
--       due     '' at once, '+<ms>' so long from now, '@<ms>' at this time; what has passed: at once
--       own     the id if the caller chose it, '' if it was derived (26 characters)
--       told    about how many events are kept, '0': none is told
--   enters(due)    whether such a row goes into the stream, and not among the delayed
--   wake(tag)      after the last row: tells the promoter if there is a new first
--
-- Returns  of add_row: nothing. What could refuse it is asked before: see part_spark_check.lua

local time = redis.call('TIME')
local now, earliest = time[1] * 1000 + math.floor(time[2] / 1000), nil

local function due_at(due)
  local ms = tonumber(string.sub(due, 2))
  return ms and string.byte(due) == 43 and now + ms or ms or now
end

local function enters(due)
  return due == '' or due_at(due) <= now
end

local function add_later(tag, envelope, name, due, own, told)
  local at, id = due_at(due), own ~= '' and own or string.sub(envelope, 3, 28)
  -- Member, index and marker are those of wire/delayed.py, store/delayed.py and schedule.lua.
  local member = struct.pack('<I4', #name) .. name .. envelope
  local lives, index = math.max(1, math.floor((at - now) / 1000)) + 3600, member
  if own == '' then index = string.format('%04.0f ', at) .. string.sub(member, 1, 6 + #name) end
  redis.call('ZADD', tag .. 'delayed', at, member)
  redis.call('SET', tag .. 'didx:' .. id, index, 'EX', lives)
  if own ~= '' then redis.call('SET', tag .. 'dlid:' .. own, '1', 'EX', lives) end
  earliest = math.min(earliest or at, at)
  if told ~= '0' then -- whatever befalls the event befalls the event alone
    local row = {'e', 'delayed', 'id', id, 'ts', now}
    if name ~= '' then row[7], row[8] = 'n', name end
    row[#row + 1], row[#row + 2] = 'delay_ms', at - now
    redis.pcall('XADD', tag .. 'events', 'MAXLEN', '~', told, '*', unpack(row))
  end
end

local function add_row(tag, envelope, name, due, own, told)
  if not enters(due) then
    add_later(tag, envelope, name, due, own, told)
  elseif name == '' then
    redis.call('XADD', tag .. 'stream', '*', 'd', envelope)
  else
    redis.call('XADD', tag .. 'stream', '*', 'd', envelope, 'n', name)
  end
end

local function wake(tag)
  local first = earliest and redis.pcall('ZRANGE', tag .. 'delayed', 0, 0, 'WITHSCORES')[2]
  if first and tonumber(first) == earliest then redis.pcall('PUBLISH', tag .. 'wake', '1') end
end
