"""Two schedulers of one queue, stopped where a test wants them, and specs that are due.

A rival's tick has two steps that reach the server: it sees what is due, and it fires. It can be
halted before the second for as long as one likes; servers and scripts are the real ones, and only
the moment is chosen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.config import ConnectOptions, ScheduleOptions
from chasquimq.engine.scheduler import Scheduler
from chasquimq.happening import Happening
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk
from tests.engine.roster import now_ms

MINUTE = 60_000
KEY = "bill"
PATIENCE_S = 20.0


class Case(NamedTuple):
    """A spec of one window each minute: its policy, how many are due, and which of those fire."""

    missed: dict[str, Any]
    due: int
    fires: int

    def __str__(self) -> str:
        most = self.missed.get("max_catchup", "")
        return f"{self.missed['kind']}{most}-{self.due}"


SKIP, ONCE = {"kind": "skip"}, {"kind": "fire-once"}
ALL, SOME = ({"kind": "fire-all", "max_catchup": most} for most in (100, 3))
CASES = (
    Case(SKIP, 1, 1),
    Case(ONCE, 1, 1),
    Case(ALL, 1, 1),
    Case(SKIP, 6, 0),
    Case(ONCE, 6, 1),
    Case(SOME, 6, 3),
    Case(ALL, 6, 6),
)


class Rival:
    def __init__(self, desk: Desk, holder: str, url: str | None = None) -> None:
        self.told: list[Happening] = []
        options = ConnectOptions(retry_ms=1)
        dialer = Dialer(read_url(url or desk.server.url), None, options)
        self.store = Store(desk.keys, dialer, desk.server.forced_dialect)
        self.holder = holder
        self._halts = False
        self._there, self._go = asyncio.Event(), asyncio.Event()
        self._tick: asyncio.Task[float] | None = None

    async def open(self) -> Rival:
        await self.store.open()
        self.scheduler = Scheduler(self.store, self.holder, self.told.append, ScheduleOptions())
        self._fire = self.store.specs.fire
        setattr(self.store.specs, "fire", self._gated)  # noqa: B010
        return self

    @property
    def leads(self) -> bool:
        return self.scheduler.leads

    async def tick(self) -> float:
        """A whole one."""
        self._halts = False
        return await self.scheduler.tick()

    async def see(self) -> None:
        """The first half of a tick: it has seen what is due, and has not fired."""
        assert self._tick is None, "it is in the middle of a tick"
        self._halts = True
        self._there.clear()
        self._go.clear()
        self._tick = asyncio.ensure_future(self.scheduler.tick())
        async with asyncio.timeout(PATIENCE_S):
            there = asyncio.ensure_future(self._there.wait())
            await asyncio.wait([self._tick, there], return_when=asyncio.FIRST_COMPLETED)
            there.cancel()

    async def go_on(self) -> float:
        """The second half: it fires what it saw."""
        tick, self._tick = self._tick, None
        assert tick is not None, "it is not in a tick"
        self._go.set()
        async with asyncio.timeout(PATIENCE_S):
            return await tick

    async def give_up(self, turns: int = 0) -> None:
        """Cancel it: before it fires, or some turns of the event loop after it went on."""
        tick, self._tick = self._tick, None
        assert tick is not None, "it is not in a tick"
        if turns:
            self._go.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        tick.cancel()
        await asyncio.wait([tick])

    @property
    def halfway(self) -> bool:
        return self._tick is not None

    async def close(self) -> None:
        if self._tick is not None:
            await self.give_up()
        await self.store.close()

    async def _gated(self, *args: Any) -> Any:
        if self._halts:
            self._there.set()
            await self._go.wait()
        return await self._fire(*args)


@asynccontextmanager
async def rivals(desk: Desk, *holders: str, url: str | None = None) -> AsyncIterator[list[Rival]]:
    """Schedulers with connections of their own; the first one may go through a proxy."""
    them = [Rival(desk, holder, url if at == 0 else None) for at, holder in enumerate(holders)]
    try:
        yield [await one.open() for one in them]
    finally:
        for one in them:
            await one.close()


async def arm(desk: Desk, case: Case, key: str = KEY, data: Any = "old", **more: Any) -> int:
    """Write a spec and have it be late; answers its first window."""
    async with desk.queue() as queue:
        repeat = {"kind": "every", "interval_ms": MINUTE}
        more = {"missed_fires": case.missed, **more}
        await queue.upsert_repeatable_job("n", data, repeat=repeat, key=key, **more)
    first = now_ms(desk) - case.due * MINUTE + MINUTE // 2
    desk.redis.zadd(desk.keys.repeat, {key: first}, xx=True)
    return first


def score(desk: Desk, key: str = KEY) -> float | None:
    return desk.redis.zscore(desk.keys.repeat, key)


def fired(desk: Desk) -> list[str]:
    """The ids of what was fired, in the order of the stream."""
    return [envelope.id for envelope in desk.envelopes()]


def windows(first: int, count: int, key: str = KEY) -> list[str]:
    return [f"{key}@{first + n * MINUTE}" for n in range(count)]


def fired_once(desk: Desk, case: Case, first: int, key: str = KEY) -> None:
    """Each window that the policy wants, once, and the spec stands behind the last one."""
    assert [job for job in fired(desk) if job.startswith(f"{key}@")] == windows(
        first, case.fires, key
    )
    assert score(desk, key) == first + case.due * MINUTE
    counted = desk.redis.hget(desk.keys.spec(key), "fired")
    assert int(counted or 0) == case.fires


def nothing_left(desk: Desk) -> None:
    """No member without a hash, no hash without a member, and no job."""
    assert desk.redis.keys(desk.keys.tag + b"repeat*") == []
    assert fired(desk) == []


def lock_expires(desk: Desk) -> None:
    """As if its time had come."""
    desk.redis.delete(desk.keys.scheduler_lock)


def holder(desk: Desk) -> str | None:
    held = desk.redis.get(desk.keys.scheduler_lock)
    return None if held is None else bytes(held).decode()


def data_of(desk: Desk) -> list[Any]:
    return [wire.decode(envelope.payload) for envelope in desk.envelopes()]
