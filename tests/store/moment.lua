-- Put in front of a script: the spec `k` is armed OFFSET ms from now, by the script's own clock.

local moment = redis.call('TIME')
moment = moment[1] * 1000 + math.floor(moment[2] / 1000) + OFFSET
redis.call('ZADD', KEYS[1], string.format('%.1f', moment), 'k')
