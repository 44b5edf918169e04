"""Health as a value: it tells the truth about what lives, what answers, and since when."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from chasquimq import Health, Job, Worker
from chasquimq.engine.recovery import Recovery
from chasquimq.engine.scheduler import Scheduler
from chasquimq.health import Connection, Counters, examined
from tests.engine.desk import Desk, eventually


async def nothing(job: Job) -> None:
    pass


async def test_a_working_worker_is_healthy_and_says_of_what_it_consists(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(nothing) as worker:
        await queue.add_bulk([{"name": "", "data": None}] * 20)
        await desk.settled()
        await eventually(lambda: worker.health().leads and worker.health().schedules)
        await eventually(lambda: worker.health().held == 0)
        await eventually(lambda: worker.health().healthy)  # its leases' connection comes last
        health = worker.health()
        assert (health.healthy, health.state, health.problems) == (True, "running", ())
        assert health.tasks == dict.fromkeys(
            (
                *("pool", "reader", "brake", "claimer", "promoter", "janitor", "scheduler"),
                *("pulse", "lease"),
            ),
            "running",
        )
        assert set(health.connections) == {"requests", "reader", "settler", "lease"}
        assert all(connection.up for connection in health.connections.values())
        assert (health.running, health.queued, health.held) == (0, 0, 0)
        assert health.counters == Counters(read=20)
        assert health.last_read_s is not None
        assert health.renewal_gap_s is not None
        assert json.loads(json.dumps(health.to_dict()))["healthy"] is True


async def test_before_and_after_it_is_not(desk: Desk) -> None:
    worker = desk.worker(nothing, burst=True)
    assert (worker.health().healthy, worker.health().state) == (False, "new")
    await asyncio.wait_for(worker.run(), 30)
    assert (worker.health().healthy, worker.health().state) == (False, "stopped")


async def test_one_that_cannot_start_says_why(desk: Desk) -> None:
    worker = Worker("q", nothing, redis_url="redis://127.0.0.1:1")
    with pytest.raises(RuntimeError):
        await worker.run()
    health = worker.health()
    assert (health.healthy, health.state) == (False, "failed")
    assert "127.0.0.1:1" in health.problems[0]


async def test_a_loop_that_dies_takes_the_worker_down_and_health_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(self: Recovery) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Recovery, "run", dies)
    worker = desk.worker(nothing)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await asyncio.wait_for(worker.run(), 30)
    health = worker.health()
    assert (health.healthy, health.state) == (False, "failed")
    assert "a defect" in health.problems[0]


async def test_a_scheduler_that_dies_takes_the_worker_down_and_health_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dies(self: Scheduler) -> float | None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Scheduler, "_act", dies)
    worker = desk.worker(nothing)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        await asyncio.wait_for(worker.run(), 30)
    health = worker.health()
    assert (health.healthy, health.state) == (False, "failed")
    assert "a defect" in health.problems[0]


async def test_one_worker_says_that_it_schedules_and_the_next_takes_over(desk: Desk) -> None:
    async with desk.working(nothing, delayed_enabled=False) as one:
        await eventually(lambda: one.health().schedules)
        assert not one.health().leads  # which is about delayed jobs
        async with desk.working(nothing) as other, desk.working(nothing, run_scheduler=False) as no:
            await eventually(lambda: other.health().healthy and no.health().healthy)
            assert (other.health().schedules, no.health().schedules) == (False, False)
            assert set(other.health().tasks) - set(no.health().tasks) == {"scheduler"}
            await one.close()
            await eventually(lambda: other.health().schedules)
            assert not one.health().schedules
            assert not no.health().schedules


async def test_what_runs_and_what_waits_is_counted(desk: Desk) -> None:
    go = asyncio.Event()

    async def handler(job: Job) -> None:
        await go.wait()

    async with desk.queue() as queue, desk.working(handler, concurrency=3) as worker:
        await queue.add_bulk([{"name": "", "data": None}] * 3)
        await eventually(lambda: worker.health().running == 3)
        assert worker.health().held == 3
        await eventually(lambda: worker.health().healthy)  # busy is no illness
        go.set()
        await desk.settled()
        await eventually(lambda: worker.health().running == 0)


async def test_threads_are_counted(desk: Desk) -> None:
    go = threading.Event()

    def handler(job: Job) -> None:
        go.wait(30)

    async with desk.queue() as queue, desk.working(handler) as worker:
        await queue.add("", None)
        await eventually(lambda: worker.health().threads_busy == 1)
        go.set()
        await eventually(lambda: worker.health().threads_busy == 0)


async def test_a_server_that_is_away_is_a_problem_until_it_is_back(own_desk: Desk) -> None:
    async with own_desk.working(nothing) as worker:
        await eventually(lambda: worker.health().healthy)
        own_desk.server.server.kill()
        await eventually(lambda: not any(link.up for link in worker.health().connections.values()))
        down = worker.health()
        assert not down.healthy
        assert sum("is down" in problem for problem in down.problems) == 4
        own_desk.server.server.start()
        await eventually(lambda: worker.health().healthy)
        back = worker.health()
        assert all(connection.reconnects for connection in back.connections.values())


async def test_a_server_that_does_not_answer_is_a_problem(own_desk: Desk) -> None:
    async with own_desk.working(nothing) as worker:
        await eventually(lambda: worker.health().healthy)
        own_desk.server.server.pause()
        try:
            await eventually(lambda: not worker.health().healthy)
            assert any("has not answered" in problem for problem in worker.health().problems)
        finally:
            own_desk.server.server.resume()
        await eventually(lambda: worker.health().healthy)


async def test_lost_leases_and_late_outcomes_are_counted(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        await asyncio.sleep(60)

    async with desk.queue() as queue, desk.working(handler, claim_min_idle_ms=300) as worker:
        await queue.add("", None)
        await eventually(lambda: len(desk.pending()) == 1)
        [row] = desk.pending()
        desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, [row["message_id"]])
        await eventually(lambda: worker.health().counters.leases_lost == 1)
        assert worker.health().held == 0


async def test_a_lease_that_two_renewals_find_lost_is_lost_once(desk: Desk) -> None:
    """The second one was on its way before we heard of the first, or while the handler ends."""
    ends = asyncio.Event()

    async def handler(job: Job) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await ends.wait()

    async with desk.queue() as queue, desk.working(handler) as worker:
        await queue.add("", None)
        await eventually(lambda: worker.health().running == 1)
        [row] = desk.pending()
        assert worker._consumer is not None
        for _ in range(2):
            worker._consumer._lost([row["message_id"]])
            await asyncio.sleep(0)
        assert worker.health().counters.leases_lost == 1
        ends.set()


WELL = Health(
    state="running",
    tasks={"reader": "running"},
    connections={"reader": Connection(True)},
    renewal_gap_s=1.0,
    lease_s=30.0,
)


def test_what_counts_as_a_problem() -> None:
    def problems(**changes: object) -> tuple[str, ...]:
        facts = {name: getattr(WELL, name) for name in Health.__struct_fields__}
        return examined(Health(**{**facts, **changes})).problems  # type: ignore[arg-type]

    assert problems() == ()
    assert problems(tasks={"reader": "failed: no"}) == ("reader has failed: no",)
    assert problems(tasks={"scheduler": "ended"}) == ("scheduler has ended",)
    assert problems(connections={"x": Connection(False)}) == ("the connection of x is down",)
    assert problems(connections={"x": Connection(True, 0, 2.9)}) == ()
    assert problems(connections={"x": Connection(True, 0, 3.1)}) == (
        "Redis has not answered x for 3.1 s",
    )
    assert problems(renewal_gap_s=30.5) == ("leases were last renewed 30.5 s ago, and last 30 s",)
    assert problems(reading_s=None, reading_limit_s=15.0) == ()
    assert problems(reading_s=14.9, reading_limit_s=15.0) == ()
    assert problems(reading_s=15.1, reading_limit_s=15.0) == (
        "the reader has got no answer for 15.1 s, though it has room",
    )
    assert problems(reading_s=15.1, reading_limit_s=15.0, paused=True) == ()
    assert problems(loop_lag_s=2.9) == ()
    assert problems(loop_lag_s=4.2) == (
        "the event loop was blocked for 4.2 s: is a handler blocking it?",
    )
    assert problems(state="stopping", tasks={"reader": "ended"}) == ()
    assert problems(state="stopped", tasks={"reader": "ended"}) == ()
