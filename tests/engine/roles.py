"""The standalone Promoter and Scheduler, as tests run them, and what is due for either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.native import Promoter, Scheduler
from tests.engine.desk import Desk
from tests.engine.roster import lay, now_ms, packed


class Role:
    """One of the two. `often_ms` is its interval, whatever that is called."""

    door: type[Promoter] | type[Scheduler]
    interval: str  # the option
    letter: bytes  # of the names it gives itself

    def __init__(self, desk: Desk) -> None:
        self.desk = desk

    def make(self, **options: Any) -> Promoter | Scheduler:
        desk = self.desk
        if "often_ms" in options:
            options[self.interval] = options.pop("often_ms")
        return self.door(desk.server.url, desk.name, dialect=desk.server.forced_dialect, **options)

    @asynccontextmanager
    async def leading(self, **options: Any) -> AsyncIterator[Promoter | Scheduler]:
        """One that runs for the block, and must end when it is told to."""
        door = self.make(**options)
        async with asyncio.TaskGroup() as group:
            group.create_task(door.run())
            try:
                yield door
            finally:
                door.shutdown()

    @property
    def lock(self) -> bytes:
        raise NotImplementedError

    def holder(self) -> bytes | None:
        return self.desk.redis.get(self.lock)  # type: ignore[return-value]

    def due(self, name: str) -> str:
        """Something due, as another program would write it; answers the id of its job."""
        raise NotImplementedError


class Promoting(Role):
    door, interval, letter = Promoter, "poll_interval_ms", b"p"

    @property
    def lock(self) -> bytes:
        return self.desk.keys.promoter_lock

    def due(self, name: str) -> str:
        self.delay(name)
        return name

    def delay(self, job_id: str, name: str = "", due: float = 1.0) -> None:
        body = wire.pack_envelope(Envelope(job_id, b"\xc1", 1_700_000_000_000))
        member = wire.join_member(name.encode(), body)
        self.desk.redis.zadd(self.desk.keys.delayed, {member: due})


class Scheduling(Role):
    door, interval, letter = Scheduler, "tick_interval_ms", b"s"

    @property
    def lock(self) -> bytes:
        return self.desk.keys.scheduler_lock

    def due(self, name: str) -> str:
        return f"{name}@{self.lay(name)}"

    def lay(self, key: str, job_name: str = "") -> int:
        """A spec that is due; answers since when."""
        at_ms = now_ms(self.desk) - 1
        lay(self.desk, key, at_ms, packed(key, job_name=job_name))
        return at_ms
