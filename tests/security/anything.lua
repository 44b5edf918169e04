-- Call whatever the arguments say.
return redis.call(unpack(ARGV))
