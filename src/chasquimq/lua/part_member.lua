-- Read a member of the delayed set.
--
--   split(member)        its name and its envelope, as wire/delayed.py reads them
--   job_id(envelope)     of the array form, which is what side-indexed jobs have
--
-- Returns  of split: nothing where the member is malformed; of job_id: '' where it has another form

local function split(member)
  local a, b, c, d = string.byte(member, 1, 4)
  local from, length = 2, a or 1
  if c == 0 and d == 0 then from, length = 5, a + b * 256 end
  if from + length > #member then return nil end
  return string.sub(member, from, from + length - 1), string.sub(member, from + length)
end

local function job_id(envelope)
  local head, a, b = string.byte(envelope, 2, 4)
  if head and head >= 160 and head <= 191 then return string.sub(envelope, 3, head - 158) end
  if head == 217 and a then return string.sub(envelope, 4, 3 + a) end
  if head == 218 and b then return string.sub(envelope, 5, 4 + a * 256 + b) end
  return ''
end
