"""The standalone Scheduler: one leads, another takes over, and it tells what it made."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chasquimq import ConfigError, InMemorySink, RepeatPattern, StoreUnavailableError
from chasquimq.native import Scheduler
from tests.chaos.kit.fleet import Process, environment
from tests.chaos.kit.wait import eventually as wait_until
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, lay, now_ms, packed

PROGRAM = """
import asyncio, json, sys
from chasquimq.native import Scheduler
from tests.chaos.kit.fleet import obey_parent

obey_parent()
print("ready", flush=True)
asyncio.run(Scheduler(**json.loads(sys.argv[1])).run())
"""


def scheduler(desk: Desk, **options: Any) -> Scheduler:
    return Scheduler(desk.server.url, desk.name, dialect=desk.server.forced_dialect, **options)


@asynccontextmanager
async def scheduling(desk: Desk, **options: Any) -> AsyncIterator[Scheduler]:
    """A scheduler that runs for the block, and must end when it is told to."""
    door = scheduler(desk, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(door.run())
        try:
            yield door
        finally:
            door.shutdown()


def holder(desk: Desk) -> bytes | None:
    return desk.redis.get(desk.keys.scheduler_lock)  # type: ignore[return-value]


def due(desk: Desk, key: str, name: str = "") -> int:
    """A spec that is due, as another program would write it; answers since when."""
    at_ms = now_ms(desk) - 1
    lay(desk, key, at_ms, packed(key, job_name=name))
    return at_ms


async def test_due_specs_make_jobs_and_are_told_of(desk: Desk) -> None:
    sink = InMemorySink()
    one, two = due(desk, "one"), due(desk, "two", "ñ")
    lay(desk, "far", now_ms(desk) + HOUR_MS)
    async with scheduling(desk, metrics=sink):
        await eventually(lambda: desk.waiting() == 2)
        async with desk.queue() as queue:
            await queue.add("soon", 1, repeat=RepeatPattern.every(1), limit=1)
        await eventually(lambda: desk.waiting() == 3)
        await eventually(lambda: len(desk.events()) == 3)
    ids = [envelope.id for envelope in desk.envelopes()]
    assert sorted(ids[:2]) == [f"one@{one}", f"two@{two}"]
    assert ids[2].startswith("soon::every:1@")
    told = [(e.name, e.job_id, e.job_name) for e in desk.events()]
    assert sorted(told[:2]) == [("waiting", f"one@{one}", ""), ("waiting", f"two@{two}", "ñ")]
    assert told[2] == ("waiting", ids[2], "soon")
    assert desk.redis.zscore(desk.keys.repeat, "one") == one + HOUR_MS
    assert desk.redis.zcard(desk.keys.repeat) == 3


async def test_events_can_be_off_and_are_capped(desk: Desk) -> None:
    for number in range(1_200):
        due(desk, f"s-{number}")
    async with scheduling(desk, events_enabled=False, batch=1_000):
        await eventually(lambda: desk.waiting() == 1_200)
    assert desk.events() == []
    for number in range(1_200):
        due(desk, f"s-{number}")
    async with scheduling(desk, events_max_stream_len=10):
        await eventually(lambda: desk.waiting() == 2_400)
    assert 10 <= desk.redis.xlen(desk.keys.events) < 1_200


@pytest.mark.parametrize("batch", [0, 1, 3])
async def test_a_batch_is_how_many_specs_it_takes_at_once(desk: Desk, batch: int) -> None:
    for number in range(7):
        due(desk, f"s-{number}")
    # Neither its tick nor its lock makes it look again.
    async with scheduling(desk, batch=batch, tick_interval_ms=3_600_000, lock_ttl_secs=86_400):
        await eventually(lambda: desk.waiting() == 7)
    assert len({envelope.id for envelope in desk.envelopes()}) == 7


async def test_the_stream_is_not_trimmed_by_what_fires(desk: Desk) -> None:
    for number in range(300):
        due(desk, f"s-{number}")
    async with scheduling(desk, max_stream_len=10):
        await eventually(lambda: desk.waiting() == 300)


async def test_one_leads_and_lets_go_when_it_is_told_to_stop(desk: Desk) -> None:
    async with scheduling(desk) as first:
        await eventually(lambda: holder(desk))
        name = holder(desk)
        assert name is not None and name.startswith(b"s-") and len(name) == 38
        async with scheduling(desk, holder_id="other", tick_interval_ms=20):
            due(desk, "due")
            await eventually(lambda: desk.waiting() == 1)
            assert holder(desk) == name
            first.shutdown()
            await eventually(lambda: holder(desk) == b"other")
            due(desk, "due-2")
            await eventually(lambda: desk.waiting() == 2)
    assert holder(desk) is None


async def test_another_takes_over_from_one_that_was_killed(desk: Desk, tmp_path: Path) -> None:
    orders = {"redis_url": desk.server.url, "queue_name": desk.name, "holder_id": "victim"}
    orders |= {"dialect": desk.server.forced_dialect, "lock_ttl_secs": 1}
    command = [sys.executable, "-c", PROGRAM, json.dumps(orders)]
    victim = Process(command, tmp_path / "stderr", environment(ours=True))
    try:
        victim.wait_ready()
        await eventually(lambda: holder(desk) == b"victim")
        async with scheduling(desk, holder_id="heir", lock_ttl_secs=1, tick_interval_ms=50):
            victim.kill()
            at_ms = due(desk, "orphan")
            await eventually(lambda: holder(desk) == b"heir")
            await eventually(lambda: desk.waiting() == 1)
    finally:
        victim.kill()
    assert [envelope.id for envelope in desk.envelopes()] == [f"orphan@{at_ms}"]


async def test_a_lock_that_lives_shorter_than_a_tick_is_renewed(desk: Desk) -> None:
    """Nothing is due, and the tick is an hour: it comes by to keep the lock."""
    left: list[int] = []

    def renewed() -> bool:
        left.append(desk.redis.pttl(desk.keys.scheduler_lock))
        return 0 < left[-2] < left[-1]

    async with scheduling(desk, lock_ttl_secs=1, tick_interval_ms=3_600_000):
        await eventually(lambda: holder(desk))
        left.append(desk.redis.pttl(desk.keys.scheduler_lock))
        await eventually(renewed)


async def test_a_stream_that_it_makes_has_our_settings(desk: Desk) -> None:
    """All specs may be another program's, which makes no stream before it adds to it."""
    async with scheduling(desk):
        await eventually(lambda: holder(desk))
    assert desk.redis.type(desk.keys.stream) == b"stream"
    if desk.server.name == "redis-native":
        assert desk.redis.xinfo_stream(desk.keys.stream)["idmp-maxsize"] == 10_000


async def test_a_restart_of_the_server_is_waited_out(own_desk: Desk) -> None:
    desk, sink = own_desk, InMemorySink()
    async with scheduling(desk, lock_ttl_secs=1, tick_interval_ms=50, metrics=sink):
        await eventually(lambda: holder(desk))
        desk.server.server.kill()
        desk.server.server.start()
        at_ms = due(desk, "after")
        await eventually(lambda: desk.waiting() == 1)
        await eventually(lambda: [e.job_id for e in desk.events()] == [f"after@{at_ms}"])
    assert sink.rollup().worker.reconnects >= 1


async def test_it_gives_up_when_it_was_told_when(own_desk: Desk) -> None:
    desk = own_desk
    door = scheduler(desk, reconnect_max_attempts=2, tick_interval_ms=50)
    running = asyncio.ensure_future(door.run())
    await eventually(lambda: holder(desk))
    desk.server.server.kill()
    with pytest.raises(StoreUnavailableError, match=r"gave up on .* after 2 tries"):
        await asyncio.wait_for(running, 20)
    desk.server.server.start()
    running = asyncio.ensure_future(door.run())  # and may be asked again
    await eventually(lambda: holder(desk))
    door.shutdown()
    await running


async def test_who_may_not_subscribe_fires_all_the_same(own_desk: Desk) -> None:
    """A user of the server without the right to channels hears no wake-ups."""
    desk = own_desk
    rules = ("on", "nopass", "~*", "resetchannels", "+@all")
    desk.redis.execute_command("ACL", "SETUSER", "deaf", *rules)
    url = desk.server.url.replace("redis://", "redis://deaf:x@")  # not a secret
    door = Scheduler(
        url, desk.name, dialect=desk.server.forced_dialect, tick_interval_ms=20, batch=5
    )
    running = asyncio.ensure_future(door.run())
    await eventually(lambda: holder(desk))
    due(desk, "one")
    await eventually(lambda: desk.waiting() == 1)
    door.shutdown()
    await running
    assert "deaf:x" not in repr(door)


async def test_the_first_connection_must_succeed() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        await Scheduler("redis://127.0.0.1:1", "q").run()


async def test_its_life(desk: Desk) -> None:
    door = scheduler(desk)
    running = [asyncio.ensure_future(door.run()) for _ in range(2)]  # the second one waits, too
    await eventually(lambda: holder(desk))
    door.shutdown()
    async with asyncio.timeout(20):
        for run in running:
            await run
        await door.run()  # after shutdown: nothing
    assert holder(desk) is None
    never = scheduler(desk)
    never.shutdown()
    await never.run()
    assert holder(desk) is None


def test_it_can_be_stopped_from_another_thread(desk: Desk) -> None:
    door = scheduler(desk)
    # A loop in debug mode refuses what is not safe from outside.
    run = partial(asyncio.run, door.run(), debug=True)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: holder(desk))
    door.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert holder(desk) is None


async def test_a_cancelled_one_lets_go_too(desk: Desk) -> None:
    running = asyncio.ensure_future(scheduler(desk).run())
    await eventually(lambda: holder(desk))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert holder(desk) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tick_interval_ms": 0}, "tick_ms must be from 1 to 3600000"),
        ({"tick_interval_ms": -1}, "tick_ms must be from 1 to 3600000"),
        ({"batch": 1_001}, "batch must be from 1 to 1000"),
        ({"batch": -1}, "batch must be from 1 to 1000"),
        ({"lock_ttl_secs": 0}, "must be from 1 to 86400"),
        ({"events_max_stream_len": 0}, "must be at least 1"),
        ({"metrics": 5}, "none of the callbacks"),
        ({"tick_ms": 5}, "did you mean 'tick_interval_ms'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Scheduler("redis://127.0.0.1:1", "q", **options)
