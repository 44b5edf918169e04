"""Who of us is in a queue's group, and who of them is dead.

A task's Worker is called `spark-<run>-<partition>` in every attempt. A Worker takes back at its
start what was left under its own name (and counts the crash as a run), so an attempt that follows
a dead one goes on where that stopped; but no two that live may share a name. Who lives is known by
the lease: a living Worker is heard of each third of it, at the latest.

1. An attempt waits until the one before it is silent for a whole lease. If that one ends well
   instead, this attempt was a copy, made because a handler took long: it runs nothing, for Spark
   would end the slower of the two in the middle of its handlers.
2. When its queue is empty, the first task of a run also takes over the names of tasks of other
   runs, whose drivers died. One at a time may: who holds the lock of a name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from chasquimq.errors import StoreError
from chasquimq.spark.client import Client
from chasquimq.wire import Keys

LOOK_S = 0.5  # between two looks at the longest
COPY_S = 10.0  # how long a copy waits for Spark to end it
_NAME = re.compile(r"spark-([0-9a-f]{12})-\d+")


def name_of(run_id: str, partition: int) -> str:
    return f"spark-{run_id}-{partition}"


def stop_key(queue: str, run_id: str) -> bytes:
    """There while the tasks of a run are asked to stop."""
    return b"%bspark-work:%b:stop" % (Keys(queue).tag, run_id.encode())


class Member(NamedTuple):
    name: str
    pending: int
    idle_ms: int  # since it was last heard of


class Group:
    """As one task sees it."""

    def __init__(self, client: Client, queue: str, group: str, lease_ms: int) -> None:
        self._client = client
        self._keys = Keys(queue)
        self._group = group
        self._lease_ms = lease_ms
        self._look_s = min(LOOK_S, lease_ms / 10_000)

    def members(self) -> list[Member]:
        """Tasks of Spark, dead or alive."""
        [reply] = self._client.ask_each([("XINFO", "CONSUMERS", self._keys.stream, self._group)])
        if isinstance(reply, Exception):
            if str(reply).startswith(("ERR no such key", "NOGROUP")):
                return []
            raise StoreError(f"cannot look who is in the group of {self._keys.queue!r}: {reply}")
        told = [dict(zip(row[::2], row[1::2], strict=True)) for row in reply]
        found = [
            Member(row[b"name"].decode(errors="replace"), row[b"pending"], row[b"idle"])
            for row in told
        ]
        return [one for one in found if _NAME.fullmatch(one.name)]

    def may_begin(self, name: str) -> bool:
        """Wait until nobody lives under this name; False if somebody did, and ended well."""
        lived = False
        while True:
            found = [one for one in self.members() if one.name == name]
            if not found and lived:
                time.sleep(COPY_S)
                return False
            if not found or found[0].idle_ms >= self._lease_ms:
                return True
            lived = True
            time.sleep(self._look_s)

    def left_by_others(self, run_id: str, over: Callable[[], bool]) -> Iterator[str]:
        """Names of dead tasks of other runs that hold jobs, each ours alone when it is told. Waits
        for those of whom it is not known yet; those who live are left alone."""
        heard: dict[str, int] = {}  # of whom we do not know yet: when they were last heard of
        passed: set[str] = set()
        while not over():
            unknown = False
            for one in self._others(run_id):
                if one.name in passed:
                    continue
                if one.idle_ms < heard.get(one.name, 0):
                    passed.add(one.name)  # it lives
                elif one.idle_ms < self._lease_ms:
                    heard[one.name], unknown = one.idle_ms, True
                else:
                    passed.add(one.name)
                    if self._lock(one.name):
                        yield one.name
            if not unknown:
                return
            time.sleep(self._look_s)

    def _others(self, run_id: str) -> list[Member]:
        return [
            one
            for one in self.members()
            if one.pending and not one.name.startswith(f"spark-{run_id}-")
        ]

    def _lock(self, name: str) -> bool:
        """Until whoever goes on under this name is heard of."""
        key = b"%bspark-work:%b" % (self._keys.tag, name.encode())
        if self._client.ask("SET", key, 1, "NX", "PX", self._lease_ms) is None:
            return False
        return any(one.name == name and one.idle_ms >= self._lease_ms for one in self.members())
