"""What becomes of a job: run, acked, retried, buried."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from typing import Any

import pytest

from chasquimq import BackoffSpec, ConfigError, Job, RetryError, UnrecoverableError, Worker, wire
from chasquimq.job import RetryOverride
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


async def nothing(job: Job) -> None:
    pass


async def test_a_handler_gets_the_job_and_the_entry_is_gone(desk: Desk) -> None:
    seen: list[Job] = []

    async def handler(job: Job) -> str:
        seen.append(job)
        return "ignored"

    async with desk.queue() as queue, desk.working(handler):
        added = await queue.add("welcome", {"to": "ada", "n": [1, 2.5, None, b"\x00"]})
        await desk.settled()
    assert seen == [added]
    assert seen[0].attempts_made == 0
    assert seen[0].attempt_number == 1
    assert desk.waiting() == 0
    assert desk.pending() == []
    assert desk.dead() == []


async def test_jobs_that_were_there_before_the_worker_are_run(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(job.id)

    for number in range(500):
        desk.put(f"job-{number}")
    async with desk.working(handler):
        await desk.settled()
    assert seen == [f"job-{number}" for number in range(500)]


DATA: list[Any] = [{1: "one"}, math.inf, -math.inf, [], "", 0, False, None, 2**64 - 1, -(2**63)]


@pytest.mark.parametrize("data", DATA, ids=repr)
async def test_data_arrives_as_it_was(desk: Desk, data: Any) -> None:
    seen: list[Any] = []

    async def handler(job: Job) -> None:
        seen.append(job.data)

    async with desk.queue() as queue, desk.working(handler):
        await queue.add("any", data)
        await desk.settled()
    assert seen == [data]


async def test_a_failed_run_is_followed_by_another(desk: Desk) -> None:
    attempts: list[int] = []

    async def handler(job: Job) -> None:
        attempts.append(job.attempt)
        if job.attempt < 3:
            raise ValueError("not yet")

    async with desk.queue() as queue, desk.working(handler, backoff=FAST):
        await queue.add("stubborn", 1)
        await desk.settled()
    assert attempts == [0, 1, 2, 3]
    assert desk.dead() == []


@pytest.mark.parametrize(("queue_wide", "own", "runs"), [(3, None, 3), (25, 2, 2), (1, 4, 4)])
async def test_a_budget_is_exact(desk: Desk, queue_wide: int, own: int | None, runs: int) -> None:
    ran: list[int] = []

    async def handler(job: Job) -> None:
        ran.append(job.attempt)
        raise ValueError("never")

    async with desk.queue() as queue, desk.working(handler, max_attempts=queue_wide, backoff=FAST):
        await queue.add("doomed", {"n": 1}, attempts=own, job_id="doomed-1")
        await desk.settled()
    assert ran == list(range(runs))
    [dead] = desk.dead()
    envelope = wire.unpack_envelope(dead[b"d"])
    assert envelope.attempt == runs - 1  # as it was on the last run
    assert list(dead)[:4] == [b"d", b"n", b"source_id", b"reason"]
    assert dead[b"reason"] == b"retries_exhausted"
    assert dead[b"job_id"] == b"doomed-1"
    assert dead[b"attempt"] == b"%d" % runs
    assert (dead[b"error_type"], dead[b"error"]) == (b"ValueError", b"never")
    assert int(dead[b"failed_at_ms"]) > 1_700_000_000_000


async def test_a_job_without_attempts_never_runs(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(nothing):
        await queue.add("never", 1, attempts=0)
        await desk.settled()
    assert [dead[b"reason"] for dead in desk.dead()] == [b"retries_exhausted"]


async def test_an_unrecoverable_error_skips_the_remaining_attempts(desk: Desk) -> None:
    class Worse(UnrecoverableError):
        pass

    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)
        raise Worse("bad input")

    async with desk.queue() as queue, desk.working(handler):
        await queue.add("bad", 1)
        await desk.settled()
    assert len(ran) == 1
    [dead] = desk.dead()
    assert dead[b"reason"] == b"unrecoverable"
    assert (dead[b"error_type"], dead[b"error"]) == (b"Worse", b"bad input")


async def test_a_handler_may_choose_its_delay(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        raise RetryError("come back", delay=60_000)

    async with desk.queue() as queue, desk.working(handler, backoff=FAST):
        await queue.add("later", 1, job_id="late")
        await eventually(lambda: desk.delayed() == 1)
    [(member, score)] = desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True)
    seconds, _ = desk.redis.time()
    assert 55_000 < score - int(seconds) * 1000 <= 61_000
    name, body = wire.split_member(member)
    assert (name, wire.unpack_envelope(body).attempt) == (b"later", 1)


async def test_a_retry_keeps_id_name_time_and_rules(desk: Desk) -> None:
    rules = RetryOverride(9, BackoffSpec("fixed", 60_000, None, None, 0))
    desk.put("kept", {"a": 1}, "n" * 256, attempt=4, retry=rules)

    async def handler(job: Job) -> None:
        raise ValueError("again")

    async with desk.working(handler):
        await eventually(lambda: desk.delayed() == 1)
    [member] = desk.redis.zrange(desk.keys.delayed, 0, -1)
    name, body = wire.split_member(member)
    envelope = wire.unpack_envelope(body)
    assert name == b"n" * 256
    assert (envelope.id, envelope.created_at_ms) == ("kept", 1_700_000_000_000)
    assert (envelope.attempt, envelope.retry) == (5, rules)
    assert (desk.waiting(), desk.pending()) == (0, [])


UNREADABLE = [
    ("reserved byte", b"\xc1\xc1", b"decode_failed"),
    ("empty", b"", b"decode_failed"),
    ("two slots", b"\x92\xa2id\xc4\x01\xc0", b"decode_failed"),
    ("user data", b"\x94\xa2id\xc4\x02\xc1\xc1\x7b\x00", b"decode_failed"),
    ("too large", b"\x94\xa2id\xc5\x04\x00" + b"x" * 1024 + b"\x7b\x00", b"oversize_payload"),
    ("worn out", b"\x94\xa2id\xc4\x01\xc0\x7b\x19", b"retries_exhausted"),
]


@pytest.mark.parametrize(("what", "body", "reason"), UNREADABLE, ids=lambda value: value)
async def test_what_cannot_run_is_buried_with_its_bytes_and_its_name(
    desk: Desk, what: str, body: bytes, reason: bytes
) -> None:
    source_id = desk.put_raw(body, b"name")
    async with desk.working(nothing, max_payload_bytes=1000):
        await desk.settled()
    [dead] = desk.dead()
    assert dead[b"d"] == body
    assert dead[b"n"] == b"name"
    assert (dead[b"reason"], dead[b"source_id"]) == (reason, source_id)
    assert desk.pending() == []


async def test_an_entry_without_an_envelope_is_malformed(desk: Desk) -> None:
    desk.redis.xadd(desk.keys.stream, {"x": "1", "n": "name"})
    async with desk.working(nothing):
        await desk.settled()
    [dead] = desk.dead()
    assert (dead[b"d"], dead[b"reason"]) == (b"", b"malformed")
    assert dead[b"detail"] == b"missing or non-bytes payload field"


async def test_a_handlers_own_cancellation_is_a_failure(desk: Desk) -> None:
    runs = 0

    async def handler(job: Job) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise asyncio.CancelledError("mine")

    async with desk.queue() as queue, desk.working(handler, backoff=FAST, concurrency=1):
        await queue.add("odd", 1)
        await desk.settled()
        await queue.add("even", 2)  # the worker lives on
        await desk.settled()
    assert runs == 3


async def test_a_plain_function_runs_in_a_thread(desk: Desk) -> None:
    threads: set[str] = set()

    def handler(job: Job) -> None:
        threads.add(threading.current_thread().name)

    worker = Worker(desk.name, handler, redis_url=desk.server.url, concurrency=4)
    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await queue.add_bulk([{"name": "n", "data": n} for n in range(20)])
        await desk.settled()
        await worker.close()
    assert threads
    assert all(name.startswith("chasqui-job") for name in threads)


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="clean")


async def test_no_handler_sees_the_context_of_another(desk: Desk) -> None:
    seen: list[str] = []

    async def handler(job: Job) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set(job.id)

    async with desk.queue() as queue, desk.working(handler, concurrency=2):
        await queue.add_bulk([{"name": "n", "data": n} for n in range(50)])
        await desk.settled()
    assert seen == ["clean"] * 50


async def test_no_more_than_concurrency_run_at_once(desk: Desk) -> None:
    running = peak = 0

    async def handler(job: Job) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.005)
        running -= 1

    async with desk.queue() as queue, desk.working(handler, concurrency=7):
        await queue.add_bulk([{"name": "n", "data": n} for n in range(100)])
        await desk.settled()
    assert peak == 7


async def test_a_slow_worker_does_not_hoard(desk: Desk) -> None:
    """It reads ahead only as fast as its handlers are; of these it knows nothing yet."""
    gate = asyncio.Event()

    async def handler(job: Job) -> None:
        await gate.wait()

    async with desk.queue() as queue, desk.working(handler, concurrency=2):
        await queue.add_bulk([{"name": "n", "data": n} for n in range(100)])
        await eventually(lambda: len(desk.pending()) >= 2)
        await queue.add("n", 100)
        assert len(desk.pending()) == 2
        gate.set()
        await desk.settled()


async def test_a_worker_that_got_stuck_gives_back_what_it_had_read_ahead(desk: Desk) -> None:
    gate = asyncio.Event()
    seen = 0

    async def handler(job: Job) -> None:
        nonlocal seen
        seen += 1
        if seen > 2_000:  # by now it is known to be fast, and hundreds are read ahead
            await gate.wait()

    async with desk.queue() as queue, desk.working(handler, concurrency=2):
        await queue.add_bulk([{"name": "n", "data": n} for n in range(4_000)])
        await eventually(lambda: seen == 2_002)
        await eventually(lambda: len(desk.pending()) == 2)
        assert desk.waiting() == 4_000 - 2_000
        gate.set()
        await desk.settled()
    assert seen == 4_000


async def test_two_workers_share_a_queue_and_run_each_job_once(desk: Desk) -> None:
    seen: list[tuple[str, str]] = []

    def handler(who: str) -> Any:
        async def handle(job: Job) -> None:
            seen.append((who, job.id))
            await asyncio.sleep(0.002)

        return handle

    a, b = desk.working(handler("a"), concurrency=5), desk.working(handler("b"), concurrency=5)
    async with desk.queue() as queue, a, b:
        added = await queue.add_bulk([{"name": "n", "data": n} for n in range(400)])
        await desk.settled()
    assert sorted(job_id for _, job_id in seen) == sorted(job.id for job in added)
    assert {who for who, _ in seen} == {"a", "b"}


async def test_events_tell_what_happened(desk: Desk) -> None:
    async def handler(job: Job) -> None:
        if job.name == "twice" and job.attempt == 0:
            raise ValueError("first")
        if job.name == "bad":
            raise UnrecoverableError("no")

    async with desk.queue() as queue, desk.working(handler, backoff=FAST, read_block_ms=50):
        for name in ("twice", "bad", ""):
            await queue.add(name, 1, job_id=f"id-{name}")
            await desk.settled()
        await eventually(lambda: desk.events()[-1].name == "drained")
    told = [(event.name, event.job_id, event.fields.get("attempt")) for event in desk.events()]
    # The promoter and the reader of a job are two connections: `waiting` may come after `active`.
    assert told.count(("waiting", "id-twice", None)) == 1
    assert [event for event in told if event[0] not in ("drained", "waiting")] == [
        ("active", "id-twice", 1),
        ("failed", "id-twice", 1),
        ("retry-scheduled", "id-twice", 2),
        ("active", "id-twice", 2),
        ("completed", "id-twice", 2),
        ("active", "id-bad", 1),
        ("failed", "id-bad", 1),
        ("dlq", "id-bad", 1),
        ("active", "id-", 1),
        ("completed", "id-", 1),
    ]


async def test_events_can_be_off(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(nothing, events_enabled=False):
        await queue.add("quiet", 1)
        await desk.settled()
    assert not desk.redis.exists(desk.keys.events)


async def test_events_can_tell_of_outcomes_only(desk: Desk) -> None:
    """Half the rows of jobs that succeed; how each run ended, and what became of it, is told."""

    async def once(job: Job) -> str:
        if job.attempt == 0 and job.name == "twice":
            raise RuntimeError("not yet")
        return "done"

    options: dict[str, Any] = {"events": "outcomes", "backoff": FAST, "store_results": True}
    options["read_block_ms"] = 50  # a read that found nothing is what tells that all is done
    async with desk.queue() as queue, desk.working(once, **options):
        added = await queue.add("twice", 1)
        assert await added.wait_for_result(timeout=10) == "done"
        await eventually(lambda: desk.events()[-1].name == "drained")
    told = [event.name for event in desk.events() if event.name not in ("drained", "waiting")]
    assert told == ["failed", "retry-scheduled", "completed"]


def test_events_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="events must be one of all, outcomes; got 'some'"):
        Worker("q", nothing, events="some")  # type: ignore[arg-type]
