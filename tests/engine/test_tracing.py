"""What a tracer is told by both doors, what travels with a job, and that nobody pays for none."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from chasquimq import BackoffSpec, InMemorySink, Job, QueueFullError, UnrecoverableError
from chasquimq.engine import limit
from chasquimq.job import Again, Dead, Reason
from chasquimq.native import Consumer, Producer
from chasquimq.observe.metrics import JobAdded
from chasquimq.trace import Batch
from tests.engine.desk import Desk, eventually
from tests.engine.tracer import Tracer, carrier, current

QUICK = BackoffSpec.fixed(1, jitter_ms=0)


def fields(desk: Desk) -> list[list[bytes]]:
    """The names of the fields of each entry, in order."""
    return [list(row) for _, row in desk.redis.xrange(desk.keys.stream)]


async def nothing(job: Any) -> None:
    pass


async def run_all(desk: Desk, handler: Any = nothing, **options: Any) -> None:
    await desk.worker(handler, burst=True, **options).run()


# -- what travels --------------------------------------------------------------------------------

WAYS: dict[str, tuple[dict[str, Any], list[bytes]]] = {
    "plain": ({"name": "n"}, [b"d", b"n", b"t"]),
    "unnamed": ({"name": ""}, [b"d", b"n", b"t"]),
    "rules": ({"name": "n", "attempts": 3, "backoff": 5}, [b"d", b"n", b"t"]),
    "own id": ({"name": "n", "job_id": "own"}, [b"d", b"n", b"t"]),
    "unique for": ({"name": "n", "job_id": "for", "unique_for": 9_000}, [b"d", b"n", b"t"]),
    "unique": ({"name": "n", "job_id": "u", "unique": "until_done"}, [b"d", b"n", b"u", b"t"]),
}


@pytest.mark.parametrize("bulk", [False, True], ids=["add", "bulk"])
async def test_every_way_to_add_carries_it_to_the_handler_s_run(desk: Desk, bulk: bool) -> None:
    tracer = Tracer()
    async with desk.queue(tracing=tracer) as queue:
        if bulk:
            jobs = await queue.add_bulk([{"data": 1, **how} for how, _ in WAYS.values()])
        else:
            jobs = [await queue.add(data=1, **how) for how, _ in WAYS.values()]
        assert fields(desk) == [names for _, names in WAYS.values()]
        await run_all(desk, tracing=tracer)
    for place, job in enumerate(jobs):
        run = tracer.run_of(job.id)
        assert run.carrier == carrier(1 if bulk else place + 1), job.id
        assert (run.name, run.attempt, run.queue, run.group) == (job.name, 1, desk.name, "default")
        assert (run.created_at_ms, run.deliveries) == (job.created_at_ms, 0)
    assert desk.dead() == []
    assert desk.redis.exists(desk.keys.unique("u")) == 0 or desk.redis.get(
        desk.keys.unique("u")
    ).startswith(b"-"), "it was freed"


async def test_a_durable_add_carries_it_too(own_desk: Desk) -> None:
    tracer = Tracer()
    async with own_desk.queue(tracing=tracer, durability="local") as queue:
        await queue.add("n", 1)
        assert fields(own_desk) == [[b"d", b"n", b"t"]]


async def test_without_a_tracer_an_entry_is_what_it_was(desk: Desk) -> None:
    async with desk.queue() as queue:
        for how, _ in WAYS.values():
            await queue.add(data=1, **how)
    bare = [[name for name in names if name != b"t"] for _, names in WAYS.values()]
    bare[1] = [b"d"]
    assert fields(desk) == bare


async def test_what_went_through_the_delayed_set_has_a_trace_of_its_own(desk: Desk) -> None:
    tracer = Tracer()

    async def handler(job: Job) -> None:
        if job.attempt == 0:
            raise ValueError("again")

    async with desk.queue(tracing=tracer) as queue:
        await queue.add("n", 1, job_id="first")
        await queue.add("n", 1, job_id="later", delay_ms=5)
        await run_all(desk, handler, tracing=tracer, backoff=QUICK)
        await queue.add("n", 1, job_id="dead", attempts=1)
        await run_all(desk, handler, tracing=tracer)
        assert await queue.replay_dlq() == 1
        await run_all(desk, tracing=tracer)
    seen = [(run.job_id, run.attempt, run.carrier) for run in tracer.runs]
    assert sorted(seen) == [
        ("dead", 1, b""),
        ("dead", 1, carrier(3)),
        ("first", 1, carrier(1)),
        ("first", 2, b""),
        ("later", 1, b""),
        ("later", 2, b""),
    ]


async def test_a_job_of_a_dead_worker_is_still_linked(desk: Desk) -> None:
    tracer = Tracer()
    async with desk.queue(tracing=tracer) as queue:
        job = await queue.add("n", 1)
        desk.abandon(1)
        async with desk.working(nothing, tracing=tracer, claim_min_idle_ms=200):
            await desk.settled()
    run = tracer.run_of(job.id)
    assert (run.carrier, run.deliveries, run.attempt) == (carrier(1), 1, 2)


async def test_a_job_that_is_put_back_with_its_charge_keeps_it(desk: Desk) -> None:
    tracer, started = Tracer(), asyncio.Event()

    async def handler(job: Job) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with desk.queue(tracing=tracer) as queue:
        await queue.add("n", 1, job_id="u", unique="until_done")
    [entry] = desk.abandon(1)
    async with desk.working(handler, tracing=tracer, claim_min_idle_ms=200, drain_ms=0):
        await started.wait()
        desk.redis.xdel(desk.keys.stream, entry)  # as a trim of others would
    [(_, row)] = desk.redis.xrange(desk.keys.stream)
    assert list(row) == [b"d", b"n", b"u", b"t"]
    assert row[b"t"] == carrier(1)
    assert desk.envelopes()[0].attempt == 2  # the lost run, and the one that the stop cut off


async def test_a_stranger_s_field_costs_no_job(desk: Desk) -> None:
    tracer = Tracer()
    strange = [b"junk", b"\xff" * 40, b"x" * 100_000, b""]
    for number, value in enumerate(strange):
        entry = desk.put(f"odd-{number}", 1, "n")
        [(_, row)] = desk.redis.xrange(desk.keys.stream, entry, entry)
        desk.redis.xdel(desk.keys.stream, entry)
        desk.redis.xadd(desk.keys.stream, {b"t": value, **row})
    await run_all(desk, tracing=tracer)
    assert sorted(tracer.ended) == [(f"odd-{number}", "completed") for number in range(4)]
    seen = [tracer.run_of(f"odd-{number}").carrier for number in range(4)]
    assert seen == [b"junk", b"\xff" * 40, b"", b""]
    assert (desk.dead(), desk.waiting()) == ([], 0)


# -- what a tracer is told of adds ---------------------------------------------------------------


async def test_each_add_and_each_bulk_is_told_once(desk: Desk) -> None:
    tracer = Tracer()
    async with desk.queue(tracing=tracer) as queue:
        one = await queue.add("mail", "x")
        await queue.add("mail", "x", job_id="mine", unique_for=9_000)
        twice = await queue.add("mail", "x", job_id="mine", unique_for=9_000)
        same = await queue.add_bulk([{"name": "a", "data": 1}] * 3)
        mixed = await queue.add_bulk([{"name": "a", "data": 1}, {"name": "b", "data": 1}])
        assert await queue.add_bulk([]) == []
    assert twice.duplicate
    assert tracer.sent == [
        (Batch(desk.name, "add", 1, "mail", "", 2), [one.id], 0, []),
        (Batch(desk.name, "add", 1, "mail", "mine", 2), ["mine"], 0, []),
        (Batch(desk.name, "add", 1, "mail", "mine", 2), ["mine"], 1, []),
        (Batch(desk.name, "add_bulk", 3, "a", "", 3), [job.id for job in same], 0, []),
        (Batch(desk.name, "add_bulk", 2, "", "", 2), [job.id for job in mixed], 0, []),
    ]
    assert tracer.unsent == []


async def test_an_add_that_is_refused_is_told_with_its_error(desk: Desk) -> None:
    tracer = Tracer()
    async with desk.queue(tracing=tracer, max_stream_len=1) as queue:
        await queue.add("n", 1)
        with pytest.raises(QueueFullError) as one:
            await queue.add("n", 2)
        with pytest.raises(QueueFullError) as bulk:
            await queue.add_bulk([{"name": "n", "data": 3}])
    assert [(batch.operation, error) for batch, error in tracer.unsent] == [
        ("add", "QueueFullError"),
        ("add_bulk", "QueueFullError"),
    ]
    assert (one.value.outcomes, len(bulk.value.outcomes)) == ([], 1)


async def test_a_caller_that_leaves_ends_its_trace(own_desk: Desk) -> None:
    tracer = Tracer()
    async with own_desk.queue(tracing=tracer) as queue:
        await queue.add("n", 1)
        own_desk.server.server.pause()
        try:
            adding = asyncio.ensure_future(queue.add("n", 2))
            await asyncio.sleep(0)
            adding.cancel()
            await asyncio.wait([adding])
        finally:
            own_desk.server.server.resume()
    assert [error for _, error in tracer.unsent] == ["CancelledError"]


# -- what a tracer is told of runs ---------------------------------------------------------------


async def test_each_end_of_a_run_is_told_inside_it(desk: Desk) -> None:
    tracer = Tracer()
    told: list[str | None] = []

    async def handler(job: Job) -> None:
        assert current.get() == job.id
        if job.name == "wrong":
            raise UnrecoverableError("never")
        if job.name == "flaky" and job.attempt == 0:
            raise KeyError("not yet")

    def on_error(job: Any, error: BaseException, verdict: Any) -> None:
        told.append(current.get())

    async with desk.queue() as queue:
        for name in ("fine", "flaky", "wrong"):
            await queue.add(name, 1, job_id=name)
    await run_all(desk, handler, tracing=tracer, backoff=QUICK, on_error=on_error)
    assert sorted(tracer.ended, key=str) == [
        ("fine", "completed"),
        ("flaky", "completed"),
        ("flaky", "failed", "KeyError", Again(1, 1)),
        ("wrong", "failed", "UnrecoverableError", Dead(1, Reason.UNRECOVERABLE)),
    ]
    assert tracer.inside == [end[0] for end in tracer.ended]
    assert sorted(told, key=str) == ["flaky", "wrong"], "on_error is a part of the run"
    assert tracer.left == 4


async def test_a_result_that_cannot_be_kept_is_a_failure(desk: Desk) -> None:
    tracer = Tracer()

    async def handler(job: Job) -> object:
        return object()

    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="one")
    await run_all(desk, handler, tracing=tracer, store_results=True)
    assert tracer.ended == [("one", "failed", "UnrecoverableError", Dead(1, Reason.UNRECOVERABLE))]


async def test_a_run_whose_lease_was_lost_is_dropped(desk: Desk) -> None:
    tracer = Tracer()
    started = asyncio.Event()

    async def handler(job: Job) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="one")
    async with desk.working(handler, tracing=tracer, claim_min_idle_ms=300, drain_ms=0):
        await started.wait()
        [row] = desk.pending()
        desk.redis.xclaim(desk.keys.stream, "default", "thief", 0, [row["message_id"]])
        await eventually(lambda: tracer.ended)
    assert tracer.ended == [("one", "dropped", "lease lost")]


async def test_a_run_that_a_stop_cuts_off_is_given_back(desk: Desk) -> None:
    tracer = Tracer()
    started = asyncio.Event()

    async def handler(job: Job) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="one")
    async with desk.working(handler, tracing=tracer, drain_ms=0):
        await started.wait()
    assert tracer.ended == [("one", "dropped", "given back")]


async def test_a_run_that_will_not_end_has_failed_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "GRACE_S", 0.05)
    tracer, release = Tracer(), threading.Event()

    async def handler(job: Job) -> None:
        deadline = time.monotonic() + 20
        while not release.is_set() and time.monotonic() < deadline:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass  # it does not want to end

    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="one", attempts=1)
    async with desk.working(handler, tracing=tracer, time_limit_ms=20):
        await eventually(lambda: tracer.ended)
        release.set()
        await eventually(lambda: tracer.left == 1)
    assert tracer.ended == [("one", "failed", "TimeLimitError", Dead(1, Reason.RETRIES_EXHAUSTED))]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_nothing_of_one_run_is_seen_by_the_next(desk: Desk, kind: str) -> None:
    """One worker's place runs all of them: what is current is the run's own, in threads as well."""
    tracer = Tracer()
    seen: list[tuple[str, str | None]] = []

    async def handler(job: Job) -> None:
        seen.append((job.id, current.get()))

    def plain(job: Job) -> None:
        seen.append((job.id, current.get()))

    async with desk.queue() as queue:
        jobs = await queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
    call = handler if kind == "async" else plain
    await run_all(desk, call, tracing=tracer, concurrency=1)
    assert seen == [(job.id, job.id) for job in jobs]
    assert current.get() is None
    assert tracer.left == 20


# -- a bad one -----------------------------------------------------------------------------------


class Broken:
    """Raises at each call, or gives out what raises at each."""

    def __init__(self, *, late: bool) -> None:
        self._late = late

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any) -> Any:
            if self._late and name in ("sending", "running"):
                return Broken(late=False)
            raise RuntimeError("the tracer is broken")

        return fail


@pytest.mark.parametrize("late", [False, True])
async def test_a_tracer_that_raises_everywhere_costs_no_job(
    desk: Desk, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("no")

    tracer: Any = Broken(late=late)
    async with desk.queue(tracing=tracer) as queue:
        jobs = [await queue.add(name, 1) for name in ("fine", "flaky")]
        jobs += await queue.add_bulk([{"name": "fine", "data": 1}] * 5)
    assert desk.waiting() == 7
    await run_all(desk, handler, tracing=tracer, backoff=QUICK)
    assert sorted(ran) == sorted([*(job.id for job in jobs), jobs[1].id])
    assert (desk.waiting(), desk.delayed(), desk.dead()) == (0, 0, [])
    said = [
        record.getMessage() for record in caplog.records if "a tracer failed" in record.getMessage()
    ]
    assert len(said) == 2, "one of the queue's, one of the worker's"


# -- the native doors ----------------------------------------------------------------------------


async def test_the_native_doors_have_both(desk: Desk) -> None:
    tracer, sink = Tracer(), InMemorySink()
    options: dict[str, Any] = {"tracing": tracer, "dialect": desk.server.forced_dialect}
    producer = Producer(desk.server.url, desk.name, metrics=sink, **options)
    one = await producer.add(b"x")
    two, three = await producer.add_bulk([b"x", b"y"])
    await producer.shutdown()
    await Consumer(desk.server.url, desk.name, burst=True, **options).run(nothing)
    assert [tracer.run_of(job).carrier for job in (one, two, three)] == [
        *(carrier(1), carrier(2), carrier(2)),
    ]
    assert sorted(tracer.ended) == sorted((job, "completed") for job in (one, two, three))
    assert sink.heard("job_added") == [JobAdded("", False)] * 3
