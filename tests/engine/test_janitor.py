"""The janitor sweeps where it leads, goes on while there is more, and holds up nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from chasquimq import Job
from chasquimq.address import read_url
from chasquimq.config import JanitorOptions
from chasquimq.engine.janitor import Janitor, long_ms
from chasquimq.happening import Happening, Swept
from chasquimq.store import Dialer, Jobs, Store, build
from tests.engine.desk import Desk, eventually

SHORT = 20
QUICK = JanitorOptions(every_ms=60_000, ghost_idle_ms=SHORT, consumer_idle_ms=SHORT)
LEASE = 30_000


@pytest.fixture
async def jobs(desk: Desk) -> AsyncIterator[Jobs]:
    """The drawer of a consumer that leads."""
    store = Store(desk.keys, Dialer(read_url(desk.server.url)), desk.server.forced_dialect)
    await store.open()
    dialect = build(store.dialect_name, desk.keys, group="default")
    desk.redis.set(desk.keys.promoter_lock, "leader")
    yield Jobs(desk.keys, dialect, store.link, "default", "leader")
    await store.close()


def put(desk: Desk, count: int) -> list[bytes]:
    """So many entries, held by a consumer that does not live."""
    with desk.redis.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(desk.keys.stream, {"d": "x"})
        pipe.execute()
    return desk.abandon(count)


def names(desk: Desk) -> list[str]:
    rows = desk.redis.xinfo_consumers(desk.keys.stream, "default")
    return sorted(row["name"].decode() for row in rows)


async def silence(desk: Desk) -> None:
    """Wait until nobody has said anything for a while, and all that they hold has rested."""

    def silent() -> bool:
        rows = desk.redis.xinfo_consumers(desk.keys.stream, "default")
        rested = all(row["time_since_delivered"] > SHORT for row in desk.pending())
        return rested and all(row["idle"] > SHORT for row in rows)

    await eventually(silent)


# -- a tick ----------------------------------------------------------------------------------------


async def test_a_tick_sweeps_tells_and_waits(
    desk: Desk, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Happening] = []
    janitor = Janitor(jobs, told.append, QUICK, LEASE, lambda: True)
    ids = put(desk, 3)
    desk.redis.xdel(desk.keys.stream, *ids[:2])
    desk.redis.xgroup_createconsumer(desk.keys.stream, "default", "gone")
    await silence(desk)
    with caplog.at_level(logging.INFO, "chasquimq.worker"):
        assert await janitor.tick() == 60.0
    assert told == [Swept(2, 1)]
    assert "swept 2 pending entries without a body, 1 names" in caplog.text
    assert [row["message_id"] for row in desk.pending()] == ids[2:]
    assert names(desk) == ["ghost"]
    assert await janitor.tick() == 60.0
    assert told == [Swept(2, 1)]  # nothing was removed, nothing is told


async def test_who_does_not_lead_asks_nothing(desk: Desk, jobs: Jobs) -> None:
    janitor = Janitor(jobs, lambda happening: None, QUICK, LEASE, lambda: False)
    assert await janitor.tick() == 60.0  # there is not even a group to ask about


async def test_who_leads_no_longer_and_does_not_know_it_removes_nothing(
    desk: Desk, jobs: Jobs
) -> None:
    told: list[Happening] = []
    janitor = Janitor(jobs, told.append, QUICK, LEASE, lambda: True)
    (entry_id,) = put(desk, 1)
    desk.redis.xdel(desk.keys.stream, entry_id)
    desk.redis.xgroup_createconsumer(desk.keys.stream, "default", "gone")
    desk.redis.set(desk.keys.promoter_lock, "another")
    await silence(desk)
    assert await janitor.tick() == 60.0
    assert (told, len(desk.pending()), names(desk)) == ([], 1, ["ghost", "gone"])


async def test_a_long_list_of_living_entries_is_walked_page_by_page(desk: Desk, jobs: Jobs) -> None:
    told: list[Happening] = []
    janitor = Janitor(jobs, told.append, QUICK, LEASE, lambda: True)
    ids = put(desk, 2_100)
    desk.redis.xdel(desk.keys.stream, ids[0], ids[-1])
    await silence(desk)
    assert [await janitor.tick() for _ in range(3)] == [0.0, 0.0, 60.0]
    assert told == [Swept(1, 0), Swept(1, 0)]
    desk.redis.xdel(desk.keys.stream, ids[1])
    assert await janitor.tick() == 0.0  # the next round begins at the beginning
    assert told[2:] == [Swept(1, 0)]


async def test_many_names_go_in_several_ticks(desk: Desk, jobs: Jobs) -> None:
    told: list[Happening] = []
    janitor = Janitor(jobs, told.append, QUICK, LEASE, lambda: True)
    desk.redis.xgroup_create(desk.keys.stream, "default", "0", mkstream=True)
    with desk.redis.pipeline(transaction=False) as pipe:
        for number in range(1_001):
            pipe.xgroup_createconsumer(desk.keys.stream, "default", f"gone-{number}")
        pipe.execute()
    await silence(desk)
    assert [await janitor.tick() for _ in range(3)] == [0.0, 0.0, 60.0]
    assert told == [Swept(0, 500), Swept(0, 500), Swept(0, 1)]


async def test_by_default_nothing_is_removed_before_an_hour(desk: Desk, jobs: Jobs) -> None:
    janitor = Janitor(jobs, lambda happening: None, JanitorOptions(), LEASE, lambda: True)
    (entry_id,) = put(desk, 1)
    desk.redis.xdel(desk.keys.stream, entry_id)
    desk.redis.xgroup_createconsumer(desk.keys.stream, "default", "resting")
    await silence(desk)
    assert await janitor.tick() == 60.0
    assert (len(desk.pending()), names(desk)) == (1, ["ghost", "resting"])


@pytest.mark.parametrize(
    ("lease_ms", "expected"),
    [(1, 3_600_000), (30_000, 3_600_000), (360_000, 3_600_000), (600_000, 6_000_000)],
)
def test_a_long_silence_is_an_hour_or_ten_leases(lease_ms: int, expected: int) -> None:
    assert long_ms(lease_ms) == expected


# -- the loop --------------------------------------------------------------------------------------


async def test_the_loop_goes_on_after_errors_that_pass(
    desk: Desk, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Happening] = []
    options = JanitorOptions(every_ms=5, ghost_idle_ms=SHORT, consumer_idle_ms=SHORT)
    janitor = Janitor(jobs, told.append, options, LEASE, lambda: True)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(janitor.run())
        await eventually(lambda: "tick failed" in caplog.text)  # there is no stream yet
        ids = put(desk, 2)
        desk.redis.xdel(desk.keys.stream, ids[0])
        await eventually(lambda: told == [Swept(1, 0)])
        janitor.stop()
    assert [row["message_id"] for row in desk.pending()] == ids[1:]


async def test_a_stop_does_not_wait_for_the_next_round(desk: Desk, jobs: Jobs) -> None:
    options = JanitorOptions(every_ms=3_600_000)
    asked: list[bool] = []

    def leads() -> bool:
        asked.append(True)
        return False

    janitor = Janitor(jobs, lambda happening: None, options, LEASE, leads)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(janitor.run())
        await eventually(lambda: asked)
        janitor.stop()
    assert asked == [True]


async def test_a_worker_that_leads_sweeps_up_behind_the_dead(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        pass

    ids = put(desk, 3)
    desk.redis.xdel(desk.keys.stream, *ids)
    desk.redis.xgroup_createconsumer(desk.keys.stream, "default", "gone")
    worker = desk.worker(handler, consumer_id="leader")
    options = JanitorOptions(every_ms=5, ghost_idle_ms=SHORT, consumer_idle_ms=SHORT)
    worker._options = msgspec.structs.replace(worker._options, janitor=options)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await eventually(lambda: not desk.pending() and names(desk) in ([], ["leader"]))
        await worker.close()
    assert names(desk) == []
