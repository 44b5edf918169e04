-- Run the command that the arguments spell, so that it fails as commands in scripts fail.

return redis.call(unpack(ARGV))
