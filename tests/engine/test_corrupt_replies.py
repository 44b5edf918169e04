"""Replies that no command of ours has: the connection is made anew, and every job runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, RepeatPattern, StoreUnavailableError
from tests.chaos.kit.proxy import Proxy
from tests.engine.desk import Desk, eventually
from tests.servers import DialectServer

JOBS = 30
LEASE_MS = 600
# Well-formed, and of a shape that none of these commands has.
REPLIES = {
    "a number": b":7\r\n",
    "a text": b"$3\r\nabc\r\n",
    "a list of nothing": b"*2\r\n$-1\r\n*-1\r\n",
    "a list of numbers": b"*3\r\n:1\r\n:2\r\n:3\r\n",
    "lists in lists": b"*1\r\n*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
}


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    return Desk(dialect_server, queue_name)


@pytest.fixture
def proxy(dialect_server: DialectServer) -> Iterator[Proxy]:
    with Proxy(dialect_server.server.port) as proxy:
        yield proxy


@pytest.mark.parametrize("command", ["XREADGROUP", "EVALSHA", "XACKDEL", "EXISTS", "TIME"])
async def test_a_worker_goes_on_and_runs_every_job(desk: Desk, proxy: Proxy, command: str) -> None:
    ran: set[str] = set()

    async def handler(job: Job) -> None:
        ran.add(job.id)
        if job.attempt == 0 and int(job.id) % 3 == 0:
            raise ValueError("once more")  # so that retries are moved, too

    options: dict[str, Any] = {"redis_url": proxy.url, "claim_min_idle_ms": LEASE_MS}
    options["backoff"] = BackoffSpec("fixed", 10)
    async with desk.working(handler, concurrency=4, **options) as worker:
        await eventually(lambda: worker.health().healthy)
        for first, reply in enumerate(REPLIES.values()):
            for nth in (1, 3, 4):
                proxy.corrupt(nth, reply, command=command)
            ids = {str(first * JOBS + at) for at in range(JOBS)}
            for job_id in ids:
                desk.put(job_id)
            await eventually(lambda: ids <= ran and not desk.left(), 30)  # noqa: B023
        await eventually(lambda: worker.health().healthy)
    if command in ("XREADGROUP", "EVALSHA"):
        assert len(proxy.cuts) > len(REPLIES)
    assert desk.pending() == [] and desk.dead() == []
    # It left the group: so no outcome was waited for that nobody would answer.
    assert desk.redis.xinfo_consumers(desk.keys.stream, "default") == []


# Lists as long as what is asked for, of values that are none.
VALUES = {
    "a value that is a number": b"*1\r\n:7\r\n",
    "a value that is a list": b"*1\r\n*1\r\n$1\r\na\r\n",
    "a row of numbers": b"*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nd\r\n:9\r\n",
}


@pytest.mark.parametrize("reply", [*REPLIES.values(), *VALUES.values()], ids=[*REPLIES, *VALUES])
async def test_what_a_door_reads_is_right_or_the_connection_is_made_anew(
    desk: Desk, proxy: Proxy, tmp_path: Path, reply: bytes
) -> None:
    async with desk.queue(redis_url=proxy.url) as queue:
        desk.redis.set(desk.keys.result("done"), b"\xc3")
        desk.redis.xadd(desk.keys.dlq, {b"d": b"x", b"reason": b"malformed"})
        await queue.upsert_repeatable_job("n", 1, repeat=RepeatPattern.every(3_600_000), key="k")
        asks: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("MGET", lambda: queue.get_job_result("done")),
            ("MGET", lambda: queue.get_job_result_bulk(["done"])),
            ("XRANGE", queue.peek_dlq),
            ("XRANGE", lambda: queue.export_dlq(tmp_path / "rows.jsonl")),
            ("XRANGE", queue.replay_dlq),
            ("EVALSHA", lambda: queue.next_fires("k", 1)),
        ]
        for command, ask in asks:
            expected = repr(await ask())
            proxy.corrupt(1, reply, command=command)
            with pytest.raises(StoreUnavailableError, match="has an unexpected shape"):
                await ask()
            assert repr(await ask()) == expected
        proxy.corrupt(1, reply, command="MGET")
        assert await queue.wait_for_result("done", 20, 0.05) is True
    assert len(proxy.cuts) == len(asks) + 1


@pytest.mark.parametrize("bulk", [False, True], ids=["single", "bulk"])
@pytest.mark.parametrize("reply", [name for name in REPLIES if name.startswith("a list")])
async def test_an_add_ends_and_no_job_comes_in_twice(
    desk: Desk, proxy: Proxy, reply: str, bulk: bool
) -> None:
    async with desk.queue(redis_url=proxy.url) as queue:
        await queue.add("send", 1, job_id="first")
        for nth in (1, 3):
            proxy.corrupt(nth, REPLIES[reply])
        for at in range(5):
            ids = [f"{at}-{n}" for n in range(3)]
            if bulk:
                await queue.add_bulk([{"name": "send", "data": 1, "job_id": one} for one in ids])
            else:
                for job_id in ids:
                    await queue.add("send", 1, job_id=job_id)
    assert len(proxy.cuts) >= 2
    found = sorted(envelope.id for envelope in desk.envelopes())
    assert found == sorted(["first", *[f"{at}-{n}" for at in range(5) for n in range(3)]])
