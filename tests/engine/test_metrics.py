"""What a sink hears of a worker at work, exactly; and that a bad sink is not felt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, MetricsSink, UnrecoverableError, wire
from chasquimq.address import read_url
from chasquimq.config import ConnectOptions, PromoteOptions
from chasquimq.engine.promoter import Promoter
from chasquimq.errors import StoreError
from chasquimq.job import Envelope
from chasquimq.observe.announce import announcer
from chasquimq.observe.memory import Call, InMemorySink, WorkerRollup
from chasquimq.observe.metrics import (
    DlqRouted,
    JobOutcome,
    LockOutcome,
    PromoterTick,
    RetryScheduled,
    listening,
)
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk, eventually

CALLBACKS = [name for name in vars(MetricsSink) if not name.startswith("_")]
ACQUIRED = Call("promoter_lock_outcome", LockOutcome("acquired", "promoter"))
HELD = Call("promoter_lock_outcome", LockOutcome("held", "promoter"))


def runs(sink: InMemorySink, name: str) -> list[tuple[str, int]]:
    """Kind and attempt of each run of the jobs of a name; how long they took is their affair."""
    outcomes: list[JobOutcome] = sink.heard("job_outcome")
    assert all(type(outcome.handler_duration_us) is int for outcome in outcomes)
    assert all(outcome.handler_duration_us >= 0 for outcome in outcomes)
    return [(outcome.kind, outcome.attempt) for outcome in outcomes if outcome.name == name]


def ended(sink: InMemorySink) -> int:
    """How many jobs will not run again."""
    totals = sink.rollup().totals
    return totals.completed + sum(totals.dead.values())


async def nothing(job: Job) -> None:
    pass


# -- a worker --------------------------------------------------------------------------------------


async def test_what_becomes_of_jobs_is_told_exactly(desk: Desk) -> None:
    sink = InMemorySink()

    async def handler(job: Job) -> None:
        if job.name == "hopeless" or (job.name == "flaky" and job.attempt < 2):
            raise ValueError("not yet")
        if job.name == "wrong":
            raise UnrecoverableError("never")

    desk.put_raw(b"\xc1", b"broken")
    desk.put_raw(wire.pack_envelope(Envelope("big", b"x" * 2_000, 1)), b"big")
    async with desk.queue() as queue:
        backoff = BackoffSpec.fixed(7, jitter_ms=0)
        for _ in range(3):
            await queue.add("fine", None)
        await queue.add("flaky", None, backoff=backoff)
        await queue.add("hopeless", None, attempts=2, backoff=backoff)
        await queue.add("wrong", None)
        await queue.add("later", None, delay_ms=5)
        async with desk.working(handler, metrics=sink, max_payload_bytes=1_000):
            await eventually(lambda: ended(sink) == 9)
            await desk.settled()
    assert runs(sink, "fine") == [("ok", 1)] * 3
    assert runs(sink, "flaky") == [("err", 1), ("err", 2), ("ok", 3)]
    assert runs(sink, "hopeless") == [("err", 1), ("err", 2)]
    assert runs(sink, "wrong") == [("err", 1)]
    assert runs(sink, "later") == [("ok", 1)]
    assert sorted(sink.heard("retry_scheduled")) == [
        RetryScheduled(2, 7, "flaky"),
        RetryScheduled(2, 7, "hopeless"),
        RetryScheduled(3, 7, "flaky"),
    ]
    assert sorted(sink.heard("dlq_routed")) == [
        DlqRouted("decode_failed", 0, "broken"),
        DlqRouted("oversize_payload", 0, "big"),
        DlqRouted("retries_exhausted", 2, "hopeless"),
        DlqRouted("unrecoverable", 1, "wrong"),
    ]
    worker = sink.rollup().worker
    assert worker == WorkerRollup(
        promoted=4,  # three retries and the delayed one
        batches=worker.batches,
        entries=12,  # the ten runs, and two that could not be one
        reclaimed=0,
    )
    outcomes = sink.heard("promoter_lock_outcome")
    assert sorted(outcome.role for outcome in outcomes) == ["promoter"] * 2 + ["scheduler"] * 2
    for role in ("promoter", "scheduler"):
        assert [outcome.kind for outcome in outcomes if outcome.role == role] == [
            *("acquired", "held")
        ]
    assert sum(tick.promoted for tick in sink.heard("promoter_tick")) == 4
    assert sink.heard("promoter_tick")[-1].depth == 0
    heard = {call.callback for call in sink.calls}
    # Nothing went wrong with the worker itself, and there are no specs.
    assert heard == {*CALLBACKS[:6], "scheduler_tick"}
    assert {(tick.fired, tick.depth) for tick in sink.heard("scheduler_tick")} == {(0, 0)}


async def test_a_run_that_took_too_long_is_told_as_such(desk: Desk) -> None:
    sink = InMemorySink()

    async def handler(job: Job) -> None:
        await asyncio.sleep(3_600)

    async with desk.queue() as queue, desk.working(handler, metrics=sink, time_limit_ms=1):
        await queue.add("slow", None, attempts=1)
        await desk.settled()
    assert runs(sink, "slow") == [("timeout", 1)]
    assert sink.heard("dlq_routed") == [DlqRouted("retries_exhausted", 1, "slow")]


async def test_a_handler_s_time_is_measured(desk: Desk) -> None:
    sink = InMemorySink()

    async def handler(job: Job) -> None:
        await asyncio.sleep(0.02)

    async with desk.queue() as queue, desk.working(handler, metrics=sink):
        await queue.add("n", None)
        await desk.settled()
    [outcome] = sink.heard("job_outcome")
    assert outcome.handler_duration_us >= 10_000


async def test_what_dead_workers_left_is_told_as_reclaimed(desk: Desk) -> None:
    sink = InMemorySink()
    for number in range(3):
        desk.put(f"job-{number}", name="left")
    desk.abandon(2)
    async with desk.working(nothing, metrics=sink, claim_min_idle_ms=300):
        await desk.settled()
    assert runs(sink, "left") == [("ok", 1), ("ok", 2), ("ok", 2)]
    worker = sink.rollup().worker
    assert (worker.entries, worker.reclaimed) == (3, 2)
    assert all(batch.size >= max(batch.reclaimed, 1) for batch in sink.heard("reader_batch"))


async def test_a_lost_lease_is_told_and_its_run_is_not(desk: Desk) -> None:
    sink = InMemorySink()
    running = asyncio.Event()

    async def handler(job: Job) -> None:
        running.set()
        await asyncio.sleep(3_600)

    entry_id = desk.put("job", name="taken")
    async with desk.working(handler, metrics=sink, claim_min_idle_ms=300):
        await running.wait()
        desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, [entry_id], idle=0)
        desk.redis.xack(desk.keys.stream, "default", entry_id)
        desk.redis.xdel(desk.keys.stream, entry_id)
        await eventually(lambda: sink.heard("leases_lost"))
    assert sink.heard("leases_lost") == [1]
    assert sink.heard("job_outcome") == []


async def test_an_outcome_that_came_too_late_is_told(desk: Desk) -> None:
    sink = InMemorySink()

    async def handler(job: Job) -> None:
        desk.redis.xack(desk.keys.stream, "default", entry_id)  # someone else settles it
        desk.redis.xdel(desk.keys.stream, entry_id)

    entry_id = desk.put("job", name="late")
    async with desk.working(handler, metrics=sink):
        await eventually(lambda: sink.heard("came_too_late"))
    assert sink.heard("came_too_late") == [1]
    assert runs(sink, "late") == [("ok", 1)]


async def test_jobs_given_back_are_told(desk: Desk) -> None:
    sink = InMemorySink()
    running: list[str] = []

    async def handler(job: Job) -> None:
        running.append(job.id)
        await asyncio.sleep(3_600)

    for number in range(3):
        desk.put(f"job-{number}")
    async with desk.working(handler, metrics=sink, drain_ms=1):
        await eventually(lambda: len(running) == 3)
    assert sink.rollup().worker.given_back == 3
    assert sink.heard("job_outcome") == []
    assert desk.waiting() == 3


async def test_a_mended_connection_is_told_by_its_name(own_desk: Desk) -> None:
    sink = InMemorySink()
    own_desk.put("before", name="n")
    async with own_desk.working(nothing, metrics=sink):
        await own_desk.settled()
        own_desk.redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: {"reader", "settler"} <= set(sink.heard("reconnected")))
        own_desk.put("after", name="n")
        await own_desk.settled()
    assert sink.rollup().worker.reconnects == len(sink.heard("reconnected"))
    assert runs(sink, "n") == [("ok", 1)] * 2


async def test_a_sink_that_raises_everywhere_is_not_felt(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    class Raises:
        def __getattr__(self, name: str) -> Any:
            def callback(*values: Any) -> None:
                raise RuntimeError(f"no {name}")

            return callback

    async def handler(job: Job) -> None:
        done.append(job.id)
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("not yet")

    done: list[str] = []
    sink = InMemorySink()
    names = ["fine", "flaky"]
    async with desk.queue() as queue:
        jobs = [{"name": names[n % 10 == 0], "data": n, "backoff": 1} for n in range(200)]
        added = await queue.add_bulk(jobs)
        async with desk.working(handler, metrics=[Raises(), sink]):
            await eventually(lambda: ended(sink) == 200)
            await desk.settled()
        assert sorted(set(done)) == sorted(job.id for job in added)
    assert len(done) == 220
    assert (desk.waiting(), desk.pending(), desk.dead()) == (0, [], [])
    totals = sink.rollup().totals  # whoever stands beside it hears everything
    assert (totals.completed, totals.failed, totals.retried) == (200, 20, 20)
    complaints = [line for line in caplog.messages if "a sink failed" in line]
    # Of all that happened to jobs one, and one of the names that it was told at the start.
    assert len(complaints) == 2
    assert complaints[0] == "a sink failed on handler_names"


# -- the promoter ----------------------------------------------------------------------------------


def ticked(promoted: int, depth: int, lag_ms: int = 0) -> Call:
    return Call("promoter_tick", PromoterTick(promoted, depth, lag_ms))


@asynccontextmanager
async def promoting(
    desk: Desk, holder: str, sink: InMemorySink, **options: int
) -> AsyncIterator[Promoter]:
    connect = ConnectOptions(timeout_ms=200)
    store = Store(
        desk.keys, Dialer(read_url(desk.server.url), None, connect), desk.server.forced_dialect
    )
    await store.open()
    yield Promoter(store, holder, announcer([listening(sink)]), PromoteOptions(**options))
    await store.close()


def delay(desk: Desk, job_id: str, at_ms: int) -> None:
    member = wire.join_member(b"n", wire.pack_envelope(Envelope(job_id, b"\xc0", 1)))
    desk.redis.zadd(desk.keys.delayed, {member: at_ms})


async def test_every_tick_of_a_leader_is_told_and_whom_the_lock_belongs_to(desk: Desk) -> None:
    sink, other = InMemorySink(), InMemorySink()
    async with promoting(desk, "one", sink, batch=2) as one, promoting(desk, "two", other) as two:
        far_off = 10**15
        for number, at_ms in enumerate([1, 2, far_off]):
            delay(desk, f"job-{number}", at_ms)
        await one.tick()
        await two.tick()  # does not lead: nothing to tell
        await one.tick()
        assert sink.calls == [ACQUIRED, ticked(2, 1), ticked(0, 1)]
        assert other.calls == []

        desk.redis.delete(desk.keys.promoter_lock)  # it expired
        await two.tick()
        await one.tick()
        await one.tick()
        assert other.calls == [ACQUIRED, ticked(0, 1)]
        assert sink.calls[3:] == [HELD]
        assert sink.rollup().worker.promoted == 2


async def test_a_promoter_that_falls_behind_says_by_how_much(desk: Desk) -> None:
    sink = InMemorySink()
    async with promoting(desk, "one", sink, batch=1) as promoter:
        seconds, micros = desk.redis.time()
        hour_ago = int(seconds) * 1000 + int(micros) // 1000 - 3_600_000
        delay(desk, "older", hour_ago - 1)
        delay(desk, "old", hour_ago)
        await promoter.tick()
    [tick] = sink.heard("promoter_tick")
    assert (tick.promoted, tick.depth) == (1, 1)
    assert tick.oldest_pending_lag_ms >= 3_600_000


async def test_unreadable_delayed_members_are_told_as_dead(desk: Desk) -> None:
    sink = InMemorySink()
    desk.redis.zadd(desk.keys.delayed, {b"": 1, b"abc": 2})
    async with promoting(desk, "one", sink) as promoter:
        await promoter.tick()
    dead = Call("dlq_routed", DlqRouted("malformed", 0, ""))
    assert sink.calls == [ACQUIRED, dead, dead, ticked(0, 0)]
    assert len(desk.dead()) == 2


async def test_a_leader_that_stops_says_that_it_leads_no_longer(desk: Desk) -> None:
    sink, other = InMemorySink(), InMemorySink()
    async with promoting(desk, "one", sink) as one, promoting(desk, "two", other) as two:
        await one.tick()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(one.run())
            group.create_task(two.run())
            await eventually(lambda: len(sink.heard("promoter_tick")) > 1)
            two.stop()
            running.cancel()  # the rude way
        assert not one.leads
    assert sink.heard("promoter_lock_outcome") == [ACQUIRED.value, HELD.value]
    assert other.calls == []
    assert not desk.redis.exists(desk.keys.promoter_lock)


async def test_a_leader_whose_tick_fails_leads_on_while_its_lock_lives(desk: Desk) -> None:
    sink = InMemorySink()
    async with promoting(desk, "one", sink, lock_ttl_s=3_600) as promoter:
        await promoter.tick()
        desk.redis.set(desk.keys.delayed, "no sorted set")
        with pytest.raises(StoreError):
            await promoter.tick()
        assert promoter.leads
    assert sink.calls == [ACQUIRED, ticked(0, 0)]


async def test_without_an_answer_a_leader_is_one_no_longer_than_its_lock_lives(
    own_desk: Desk,
) -> None:
    sink = InMemorySink()
    options = {"lock_ttl_s": 1, "poll_ms": 50}
    async with (
        promoting(own_desk, "one", sink, **options) as promoter,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(promoter.run())
        await eventually(lambda: promoter.leads)
        own_desk.server.server.kill()
        await eventually(lambda: not promoter.leads)
        own_desk.server.server.start()
        await eventually(lambda: promoter.leads)
        promoter.stop()
    outcomes = sink.heard("promoter_lock_outcome")
    assert outcomes == [ACQUIRED.value, HELD.value] * 2
