"""A queue on a server with a disk and a replica, as the tests of durable adds work with it."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import Queue, UnconfirmedError
from chasquimq.config import Durability
from tests.engine.desk import Desk, eventually
from tests.replicas import Replica

SOON = {"durability_timeout_ms": 1_000}  # long enough for whoever can confirm at all
LATER: dict[str, Any] = {"delay_ms": 3_600_000}
KINDS: list[dict[str, Any]] = [{}, {"attempts": 3}, LATER, {"job_id": "mine"}]
LEVELS: list[Durability] = ["memory", "local", "replicated"]
DURABLE: list[Durability] = ["local", "replicated"]


class Shelter:
    """A server with a disk and a replica, either of which can be kept from confirming."""

    def __init__(self, desk: Desk, replica: Replica) -> None:
        self.desk = desk
        self.replica = replica

    def stall(self, level: Durability) -> None:
        if level == "local":
            self.desk.redis.config_set("appendfsync", "no")
        else:
            self.replica.pause()

    def mend(self, level: Durability) -> None:
        if level == "local":
            self.desk.redis.config_set("appendfsync", "always")
        else:
            self.replica.resume()

    def waits(self) -> int:
        """How many waits of either kind the server has answered."""
        stats = self.desk.redis.info("commandstats")
        kinds = (stats.get(f"cmdstat_{name}", {}) for name in ("wait", "waitaof"))
        return sum(int(kind.get("calls", 0)) for kind in kinds)

    async def next_wait(self, known: set[str]) -> set[str]:
        """The connections that wait, once there is one that is not known."""
        await eventually(lambda: not self._blocked() <= known)
        return self._blocked()

    def _blocked(self) -> set[str]:
        clients = self.desk.redis.client_list()
        return {each["id"] for each in clients if each["cmd"] in ("wait", "waitaof")}

    def count(self) -> int:
        """Jobs that are in."""
        return self.desk.waiting() + self.desk.delayed()


async def unconfirmed(queue: Queue, **options: Any) -> UnconfirmedError:
    with pytest.raises(UnconfirmedError) as caught:
        await queue.add("n", {"n": 1}, **options)
    return caught.value
