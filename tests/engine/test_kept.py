"""Results: what handlers return is kept, with the ack and ahead of the event."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq import ConfigError, Job, UnrecoverableError, Worker, wire
from tests.engine.desk import Desk, eventually


async def echo(job: Job) -> Any:
    return job.data


def kept(desk: Desk, job: Job) -> bytes | None:
    return desk.redis.get(desk.keys.result(job.id))  # type: ignore[return-value]


@pytest.mark.parametrize("data", [None, 0, False, "", [], {"a": 1}, b"raw", [1, {"x": None}]])
async def test_a_result_is_kept_as_the_wire_has_it(desk: Desk, data: Any) -> None:
    async with desk.queue() as queue, desk.working(echo, store_results=True):
        added = await queue.add("", data)
        await desk.settled()
        await eventually(lambda: kept(desk, added) is not None)
    assert kept(desk, added) == wire.encode(data)


async def test_a_result_lives_as_long_as_was_asked_and_no_fraction_less(desk: Desk) -> None:
    for ttl_ms, at_most in ((None, 3_600), (1_500, 2), (1, 1), (60_000, 60)):
        async with (
            desk.queue() as queue,
            desk.working(echo, store_results=True, result_ttl_ms=ttl_ms),
        ):
            added = await queue.add("", 1)
            await eventually(lambda added=added: kept(desk, added) is not None)
            left_ms = int(desk.redis.pttl(desk.keys.result(added.id)))
            assert (at_most - 1) * 1_000 < left_ms + 1_000
            assert left_ms <= at_most * 1_000


async def test_nothing_is_kept_unless_asked_for_and_nothing_is_encoded(desk: Desk) -> None:
    async def handler(job: Job) -> object:
        return object()  # which no wire can carry

    async with desk.queue() as queue, desk.working(handler):
        added = await queue.add("", 1)
        await desk.settled()
    assert kept(desk, added) is None
    assert desk.dead() == []


async def test_who_sees_the_event_can_read_the_result(desk: Desk) -> None:
    seen: list[bytes | None] = []
    stop = asyncio.Event()

    def follow() -> None:
        """As a program elsewhere would: read the event, then the result."""
        place, client = "0", desk.server.client()
        while not stop.is_set():
            for _, rows in client.xread({desk.keys.events: place}, count=1, block=50) or []:
                for entry_id, fields in rows:
                    place = entry_id
                    if fields[b"e"] == b"completed":
                        seen.append(client.get(desk.keys.result(fields[b"id"])))

    async with desk.queue() as queue, desk.working(echo, store_results=True):
        following = asyncio.create_task(asyncio.to_thread(follow))
        await queue.add_bulk([{"name": "", "data": number} for number in range(500)])
        await eventually(lambda: len(seen) == 500)
        stop.set()
        await following
    assert None not in seen


async def test_a_result_that_cannot_be_kept_buries_its_job(desk: Desk) -> None:
    runs: list[str] = []
    heard: list[BaseException] = []

    async def handler(job: Job) -> object:
        runs.append(job.id)
        return object()

    def on_error(job: Job, error: BaseException, verdict: object) -> None:
        heard.append(error)

    options: dict[str, Any] = {"store_results": True, "on_error": on_error}
    async with desk.queue() as queue, desk.working(handler, **options):
        added = await queue.add("", 1)
        await eventually(lambda: desk.dead())
    [entry] = desk.dead()
    assert runs == [added.id]
    assert [type(error) for error in heard] == [UnrecoverableError]
    assert [row.name for row in desk.events() if row.job_id] == ["active", "failed", "dlq"]
    assert entry[b"reason"] == b"unrecoverable"
    assert b"cannot be kept as its result" in entry[b"error"]
    assert kept(desk, added) is None


async def test_a_result_that_is_too_large_buries_its_job(desk: Desk) -> None:
    async with (
        desk.queue() as queue,
        desk.working(echo, store_results=True, max_result_bytes=100),
    ):
        small = await queue.add("", "x" * 98)
        large = await queue.add("", "x" * 99)
        await eventually(lambda: desk.dead())
        await desk.settled()
    [entry] = desk.dead()
    assert entry[b"job_id"] == large.id.encode()
    assert b"101 bytes, the limit is 100" in entry[b"error"]
    assert kept(desk, small) is not None


def renewed(worker: Worker) -> bool:
    """Whether the renewal with which a worker begins is over."""
    assert worker._consumer is not None
    return worker._consumer.lease.steady_since is not None


async def test_a_job_that_somebody_else_settled_leaves_no_result(desk: Desk) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> str:
        started.set()
        await go.wait()
        return "late"

    async with (
        desk.queue() as queue,
        desk.working(handler, store_results=True, claim_min_idle_ms=60_000) as worker,
    ):
        added = await queue.add("", 1)
        await started.wait()
        # The next renewal is far away: it is the result that finds out, and not the lease.
        await eventually(lambda: renewed(worker))
        [entry] = desk.pending()
        desk.redis.xclaim(desk.keys.stream, "default", "rival", 0, [entry["message_id"]])
        go.set()
        await eventually(lambda: worker.health().counters.came_too_late == 1)
    assert kept(desk, added) is None
    [entry] = desk.pending()
    assert entry["consumer"] == b"rival"


async def test_plain_functions_have_results_too(desk: Desk) -> None:
    async with (
        desk.queue() as queue,
        desk.working(lambda job: job.data + 1, store_results=True),
    ):
        added = await queue.add("", 41)
        await eventually(lambda: kept(desk, added) is not None)
    assert kept(desk, added) == wire.encode(42)


def test_a_lifetime_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="ttl_ms"):
        Worker("q", echo, store_results=True, result_ttl_ms=0)
