"""What a user must be allowed to do for handlers to run in tasks, found out before the first runs.

A Worker waits while the server refuses it something, until a person mends that; a Spark job that
waits is a job that hangs, and a Worker that may run jobs and not settle them runs them again.
"""

from __future__ import annotations

from chasquimq.spark.client import Client
from chasquimq.spark.write.ready import check_rights
from chasquimq.wire import Keys

SCRIPTS = ("spark_may",)

# By name, how many arguments follow the key; -1: there is none. What is told to others (PUBLISH,
# SUBSCRIBE) and what has a substitute (XACKDEL) is left out: a Worker goes on without.
OF_TASKS = {"EXISTS": 0, "SET": 1, "UNLINK": 0, "XINFO|CONSUMERS": 1}
OF_WORKERS = {"XREADGROUP": 5, "XPENDING": 1, "XCLAIM": 4, "XACK": 2, "XDEL": 1, "XADD": 3}
OF_WORKERS |= {"EXPIRE": 1, "GET": 0, "TIME": -1, "XINFO|GROUPS": 0, "XLEN": 0, "XRANGE": 2}
OF_WORKERS |= {"EXISTS": 0, "SET": 1, "ZADD": 2, "ZRANGE": 2}
OF_PROMOTERS = {"DEL": 0, "ZCARD": 0, "ZRANGEBYSCORE": 2, "ZREM": 1}
OF_SCHEDULERS = {**OF_PROMOTERS, "HDEL": 1, "HMGET": 1, "HSET": 2, "ZSCORE": 1}


def needed(*, delayed: bool, scheduler: bool) -> dict[str, int]:
    promoters = OF_PROMOTERS if delayed else {}
    return OF_TASKS | OF_WORKERS | promoters | (OF_SCHEDULERS if scheduler else {})


def check(client: Client, keys: Keys, *, delayed: bool, scheduler: bool) -> None:
    """AccessError that names what is missing."""
    commands = needed(delayed=delayed, scheduler=scheduler)
    check_rights(client, keys, commands, "handlers of queue {!r} need; no job was run")
