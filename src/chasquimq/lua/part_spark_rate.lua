-- Keep the rows of a run to its rate, by the server's clock, whichever task adds them.
--
--   too_soon(run, rows, rate)
--       run     its key, where `paid_us` says until when what came in is paid for, and `line_us`
--               until when those who were told to wait have their turns
--       rows    that would come in now, all of them or none
--       rate    rows per second, '0': no limit
--
-- Returns  0 they may come in, else ms until it is their turn; and if the run must note it, the field
--          and what to write into it

local function too_soon(run, rows, rate)
  local each = 1e6 / tonumber(rate) -- microseconds that a row is worth
  if rows == 0 or each == math.huge then return 0 end
  local clock, told = redis.call('TIME'), redis.call('HMGET', run, 'paid_us', 'line_us')
  local at = clock[1] * 1e6 + clock[2]
  local paid = math.max(tonumber(told[1] or 0), at)
  -- After a pause so many at once: a quarter of a second's, at most 250; see write/chunk.py.
  local most = math.max(1, math.min(250, math.floor(tonumber(rate) / 4)))
  local first = paid - math.max(0, most - rows) * each
  if first <= at then
    return 0, 'paid_us', string.format('%.0f', paid + rows * each)
  end
  local turn = math.max(first, tonumber(told[2] or 0))
  return math.ceil((turn - at) / 1000), 'line_us', string.format('%.0f', turn + rows * each)
end
