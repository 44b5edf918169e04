"""What a user must be allowed to do, in a form that a server can be asked about before the first
job runs. Pure.

A command that is refused in the middle of a script leaves what was written before it: without XACK
a job that is buried lies in the DLQ once more with every try. So who moves jobs asks first.

By name, how many arguments follow the key; -1: there is no key. What others are told (PUBLISH,
SUBSCRIBE), what cleans up (XGROUP) and what has a substitute (XACKDEL) is left out: a worker goes
on without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chasquimq.errors import AccessError
from chasquimq.wire.keys import Keys

Calls = Mapping[str, int]

RUNNING = {"XREADGROUP": 5, "XPENDING": 1, "XCLAIM": 4, "XACK": 2, "XDEL": 1, "XADD": 3, "XLEN": 0}
RUNNING |= {"XRANGE": 2, "XINFO|GROUPS": 0, "EXISTS": 0, "EXPIRE": 1, "GET": 0, "SET": 1}
RUNNING |= {"TIME": -1, "ZADD": 2, "ZRANGE": 2}
_LEADING = {"DEL": 0, "GET": 0, "SET": 1, "TIME": -1, "XADD": 3, "ZCARD": 0, "ZRANGEBYSCORE": 2}
PROMOTING = {**_LEADING, "XLEN": 0, "ZRANGE": 2, "ZREM": 1}
FIRING = {**_LEADING, "HDEL": 1, "HMGET": 1, "HSET": 2, "ZADD": 2, "ZREM": 1, "ZSCORE": 1}


def of_worker(*, delayed: bool, scheduler: bool) -> Calls:
    return RUNNING | (PROMOTING if delayed else {}) | (FIRING if scheduler else {})


def asked(calls: Calls) -> list[str | int]:
    """The arguments of the script `may`, which answers those that are refused."""
    return [word for call in calls.items() for word in call]


def refuse_without(refused: Iterable[bytes], keys: Keys, who: str) -> None:
    """`who`: needs it for what, and what was not done."""
    if names := ", ".join(f"+{name.decode().lower()}" for name in refused):
        raise AccessError(
            f"the user may not run all that {who}. "
            f"Missing in its ACL rules: {names} on ~{keys.tag.decode()}*"
        )
