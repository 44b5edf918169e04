"""The native Consumer: handlers get payloads as they were added, and may return bytes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from chasquimq import Job, RetryError, StoreUnavailableError, UnrecoverableError, wire
from chasquimq.job import NativeJob
from chasquimq.native import Consumer, Producer
from tests.chaos.kit.wait import eventually as wait_until
from tests.engine.desk import Desk, eventually

PAYLOADS = [b"", b"\xc1 no msgpack", b"\x00" * 70_000]


def consumer(desk: Desk, **options: Any) -> Consumer:
    return Consumer(desk.server.url, desk.name, dialect=desk.server.forced_dialect, **options)


@asynccontextmanager
async def producing(desk: Desk) -> AsyncIterator[Producer]:
    door = Producer(desk.server.url, desk.name, dialect=desk.server.forced_dialect)
    try:
        yield door
    finally:
        await door.shutdown()


@asynccontextmanager
async def consuming(desk: Desk, handler: Any, **options: Any) -> AsyncIterator[Consumer]:
    """A consumer that runs for the block, and must stop cleanly after it."""
    door = consumer(desk, **options)
    async with asyncio.TaskGroup() as group:
        group.create_task(door.run(handler))
        try:
            yield door
        finally:
            door.shutdown()


async def test_a_handler_gets_what_was_added(desk: Desk) -> None:
    seen: list[NativeJob] = []

    async def handler(job: NativeJob) -> None:
        seen.append(job)

    async with producing(desk) as producer:
        ids = [await producer.add_with_options(each, {"name": "ñ"}) for each in PAYLOADS]
        created = [envelope.created_at_ms for envelope in desk.envelopes()]
        async with consuming(desk, handler):
            await desk.settled()
    assert seen == [
        NativeJob(job_id, "ñ", payload, ms, 0)
        for job_id, payload, ms in zip(ids, PAYLOADS, created, strict=True)
    ]
    assert desk.dead() == []


async def test_one_job_at_a_time_unless_told_otherwise(desk: Desk) -> None:
    running = most = 0

    async def handler(job: NativeJob) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    async with producing(desk) as producer:
        for concurrency in (1, 4):
            await producer.add_bulk([b"x"] * 12)
            most = 0
            options = {} if concurrency == 1 else {"concurrency": concurrency}
            async with consuming(desk, handler, **options):
                await desk.settled()
            assert most == concurrency


async def test_failures_are_retried_and_buried(desk: Desk) -> None:
    runs: list[tuple[bytes, int]] = []

    async def handler(job: NativeJob) -> None:
        runs.append((job.payload, job.attempt))
        if job.payload == b"never":
            raise UnrecoverableError("no")
        if job.payload == b"again" and job.attempt < 1:
            raise RetryError("not yet", delay=1)
        if job.payload == b"fails":
            raise ValueError("no")

    async with producing(desk) as producer, consuming(desk, handler):
        retry = {"max_attempts": 2, "backoff": {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}}
        for payload in (b"never", b"again", b"fails"):
            await producer.add_with_options(payload, {"retry": retry})
        await eventually(lambda: len(desk.dead()) == 2)
        await desk.settled()
        rows = await producer.peek_dlq(5)
    assert sorted(runs) == [
        (b"again", 0),
        (b"again", 1),
        (b"fails", 0),
        (b"fails", 1),
        (b"never", 0),
    ]
    dead = {wire.unpack_envelope(row["payload"]).payload: row["reason"] for row in rows}
    assert dead == {b"never": "unrecoverable", b"fails": "retries_exhausted"}


class Derived(bytes):
    def __bytes__(self) -> bytes:
        return b"something else"


RETURNED: list[tuple[Any, bytes | None]] = [  # (what a handler returns, what is kept)
    (b"\xc1", b"\xc1"),
    (b"\x00" * 70_000, b"\x00" * 70_000),
    (Derived(b"ab"), b"ab"),
    (b"", None),
    (None, None),
    ("text", None),
    (0, None),
    ({"a": 1}, None),
    (bytearray(b"x"), None),
]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "not kept"])
async def test_only_bytes_that_say_something_are_kept(desk: Desk, kept: bool) -> None:
    async def handler(job: NativeJob) -> Any:
        return RETURNED[int(job.payload)][0]

    async with producing(desk) as producer:
        ids = await producer.add_bulk([b"%d" % n for n in range(len(RETURNED))])
        options = {"result_ttl_ms": 1_500} if kept else {}
        async with consuming(desk, handler, store_results=kept, **options):
            await desk.settled()
        results = await producer.get_result_bulk(ids)
        assert await producer.get_result(ids[0]) == results[0]
    assert results == [value if kept else None for _, value in RETURNED]
    assert desk.redis.ttl(desk.keys.result(ids[0])) in ((1, 2) if kept else (-2,))
    assert desk.dead() == []
    assert desk.pending() == []


async def test_a_result_that_is_too_large_buries_the_job(desk: Desk) -> None:
    async def handler(job: NativeJob) -> bytes:
        return b"x" * 101

    async with producing(desk) as producer:
        job_id = await producer.add(b"x")
        async with consuming(desk, handler, store_results=True, max_result_bytes=100):
            await eventually(lambda: len(desk.dead()) == 1)
        assert await producer.get_result(job_id) is None


async def test_plain_functions_and_handlers_by_name(desk: Desk) -> None:
    threads: list[str] = []

    def plain(job: NativeJob) -> bytes:
        threads.append(threading.current_thread().name)
        return job.payload

    async def other(job: NativeJob) -> bytes:
        return b"other"

    async with producing(desk) as producer:
        ids = await producer.add_bulk_named([("plain", b"1"), ("other", b"2"), ("nobody", b"3")])
        async with consuming(desk, {"plain": plain, "other": other}, store_results=True):
            await desk.settled()
        assert await producer.get_result_bulk(ids) == [b"1", b"other", None]
    assert threads != [] and threads[0] != threading.main_thread().name
    assert [dead[b"reason"] for dead in desk.dead()] == [b"unrecoverable"]


async def test_a_run_that_counts_no_longer_is_told_so(desk: Desk) -> None:
    told: list[bool] = []

    async def handler(job: NativeJob) -> None:
        told.append(job.lease_lost)
        try:
            await asyncio.sleep(60)
        finally:
            told.append(job.lease_lost)

    async with producing(desk) as producer:
        await producer.add_with_options(b"x", {"retry": {"max_attempts": 1}})
        async with consuming(desk, handler, time_limit_ms=50):
            await eventually(lambda: len(desk.dead()) == 1)
    assert told == [False, True]


async def test_on_error_gets_the_native_job(desk: Desk) -> None:
    told: list[tuple[bytes, str]] = []

    async def handler(job: NativeJob) -> None:
        raise ValueError("no")

    def on_error(job: NativeJob, error: BaseException, verdict: object) -> None:
        told.append((job.payload, str(error)))

    async with producing(desk) as producer:
        await producer.add(b"x")
        async with consuming(desk, handler, on_error=on_error, max_attempts=1):
            await eventually(lambda: len(desk.dead()) == 1)
    assert told == [(b"x", "no")]


async def test_jobs_of_a_queue_are_its_encoded_data(desk: Desk) -> None:
    seen: list[Any] = []

    async def native(job: NativeJob) -> None:
        seen.append(wire.decode(job.payload))

    async def worker(job: Job) -> None:
        seen.append(job.data)

    async with desk.queue() as queue:
        await queue.add("n", {"a": [1]})
        async with consuming(desk, native):
            await desk.settled()
    async with producing(desk) as producer:
        await producer.add(wire.encode({"b": [2]}))
        async with desk.working(worker):
            await desk.settled()
    assert seen == [{"a": [1]}, {"b": [2]}]


async def test_its_life(desk: Desk) -> None:
    async def handler(job: NativeJob) -> None:
        door.shutdown()

    async def ignored(job: NativeJob) -> None:
        raise AssertionError("the first handler stays")

    door = consumer(desk)
    assert door.health().state == "new"
    running = [asyncio.ensure_future(door.run(each)) for each in (handler, ignored)]
    async with producing(desk) as producer, asyncio.timeout(20):
        await producer.add(b"x")
        for run in running:
            await run
        await door.run(handler)  # after shutdown: nothing
    assert door.health().state == "stopped"
    assert desk.waiting() == 0
    never = consumer(desk)
    never.shutdown()
    await never.run(handler)


def test_it_can_be_stopped_from_another_thread(desk: Desk) -> None:
    async def handler(job: NativeJob) -> None:
        pass

    door = consumer(desk)
    # A loop in debug mode refuses what is not safe from outside.
    run = partial(asyncio.run, door.run(handler), debug=True)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    wait_until(lambda: desk.redis.exists(desk.keys.promoter_lock))
    door.shutdown()
    thread.join(20)
    assert not thread.is_alive()
    assert door.health().state == "stopped"


async def test_the_first_connection_must_succeed() -> None:
    async def handler(job: NativeJob) -> None:
        pass

    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        await Consumer("redis://127.0.0.1:1", "q").run(handler)
