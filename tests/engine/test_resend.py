"""A connection that breaks under an add: in once, refused, or honestly unconfirmed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from chasquimq import Job, Queue, QueueFullError, UnconfirmedError
from chasquimq.store.pipe import Pipe
from tests.engine.desk import Desk, deafened, eventually

PATIENCE_MS = 120_000  # however busy the machine is


async def cutting(desk: Desk, queue: Queue, jobs: list[dict[str, Any]]) -> list[Any]:
    """Add a bulk while all connections are killed again and again; answers its outcomes."""
    adding = asyncio.ensure_future(queue.add_bulk(jobs))
    while not adding.done():
        desk.redis.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.004)
    try:
        return list(adding.result())
    except UnconfirmedError as error:
        return error.outcomes


@pytest.mark.parametrize("remembered", ["ours", "the server's defaults"])
async def test_minted_ids_come_in_once_or_are_unconfirmed(own_desk: Desk, remembered: str) -> None:
    if remembered != "ours":
        own_desk.put("someone else made the stream")
    before = own_desk.waiting()
    async with own_desk.queue(add_timeout_ms=PATIENCE_MS) as queue:
        await queue.add("warm", 1)
        jobs = [{"name": "n", "data": n} for n in range(6_000)]
        outcomes = await cutting(own_desk, queue, jobs)
    accepted = {job.id for job in outcomes if isinstance(job, Job)}
    unconfirmed = [error for error in outcomes if isinstance(error, UnconfirmedError)]
    ids = [envelope.id for envelope in own_desk.envelopes()[before + 1 :]]
    assert len(ids) == len(set(ids))  # never twice
    assert accepted <= set(ids)  # accepted means in
    assert len(accepted) + len(unconfirmed) == 6_000
    assert len(ids) <= len(accepted) + len(unconfirmed)
    if own_desk.server.name == "redis-native":
        assert unconfirmed == []  # the server recognises what is sent again
        assert len(ids) == 6_000


async def test_ids_of_the_callers_are_sent_again_on_every_server(own_desk: Desk) -> None:
    async with own_desk.queue(add_timeout_ms=PATIENCE_MS) as queue:
        await queue.add("warm", 1, job_id="warm")
        jobs: list[dict[str, Any]] = [
            {"name": "n", "data": n, "job_id": f"id-{n}"} for n in range(3_000)
        ]
        for job in jobs[::7]:
            job["delay_ms"] = 3_600_000
        outcomes = await cutting(own_desk, queue, jobs)
    assert [job.id for job in outcomes] == [job["job_id"] for job in jobs]
    now = [envelope.id for envelope in own_desk.envelopes()]
    assert len(now) == len(set(now))
    assert len(now) + own_desk.delayed() == 3_001


async def test_a_lost_answer_to_a_delayed_add_is_unconfirmed_and_never_doubled(
    own_desk: Desk,
) -> None:
    async with own_desk.queue(add_timeout_ms=PATIENCE_MS) as queue:
        await queue.add("warm", 1)
        jobs = [{"name": "n", "data": n, "delay_ms": 3_600_000} for n in range(3_000)]
        outcomes = await cutting(own_desk, queue, jobs)
    accepted = [job for job in outcomes if isinstance(job, Job)]
    assert len(accepted) <= own_desk.delayed() <= 3_000
    assert len(accepted) < 3_000  # the cuts did hit
    assert all(isinstance(x, Job | UnconfirmedError) for x in outcomes)


async def test_a_queue_that_is_closed_answers_everybody(own_desk: Desk) -> None:
    queue = own_desk.queue()
    await queue.add("warm", 1)
    own_desk.server.server.pause()
    try:
        adding = [asyncio.ensure_future(queue.add("n", n)) for n in range(10)]
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(queue.close())
        own_desk.server.server.resume()
        await closing
        done = await asyncio.gather(*adding, return_exceptions=True)
    finally:
        with contextlib.suppress(Exception):
            own_desk.server.server.resume()
    assert all(isinstance(job, Job) for job in done)
    assert own_desk.waiting() == 11


@pytest.mark.parametrize("own", [False, True], ids=["minted", "own"])
async def test_what_is_refused_when_it_is_sent_again_may_be_in(own_desk: Desk, own: bool) -> None:
    """A refusal says that this send brought nothing in. Of the first one nobody knows."""
    async with own_desk.queue() as queue:
        await queue.add("warm", 1, job_id="warm")
        pipe, _ = deafened(queue)
        jobs = [{"name": "n", "data": n, **({"job_id": f"id-{n}"} if own else {})} for n in (1, 2)]
        single = asyncio.ensure_future(queue.add(**jobs[0]))
        bulk = asyncio.ensure_future(queue.add_bulk(jobs[1:]))
        await eventually(lambda: own_desk.waiting() == 3)
        own_desk.redis.config_set("maxmemory", 1)
        pipe.close()
        outcomes = await asyncio.gather(single, bulk, return_exceptions=True)
        with pytest.raises(QueueFullError):  # of this one it is known
            await queue.add("n", 3)
        own_desk.redis.config_set("maxmemory", 0)
    if own and own_desk.server.name != "redis-native":  # the script looks before it writes
        assert isinstance(outcomes[0], Job)
    else:
        assert [type(one) for one in outcomes] == [UnconfirmedError] * 2
        if own_desk.server.name == "redis-native":
            assert "sent again it was refused: OOM" in str(outcomes[0])
    assert own_desk.waiting() == 3


async def test_a_durable_add_whose_confirmation_is_refused_is_known_to_be_in(
    own_desk: Desk,
) -> None:
    if own_desk.server.name != "redis-native":
        own_desk.redis.config_set("appendfsync", "always")
    async with own_desk.queue(durability="local") as queue:
        await queue.add("warm", 1)
        pipe, unheard = deafened(queue)
        adding = asyncio.ensure_future(queue.add("n", 1))
        await eventually(lambda: own_desk.waiting() == 2 and unheard)
        size, first = b"".join(unheard).split(b"\r\n")[:2]
        Pipe.data_received(pipe, size + b"\r\n" + first + b"\r\n")  # and then it broke
        own_desk.redis.execute_command("ACL", "SETUSER", "default", "-xadd", "-evalsha")
        pipe.close()
        with pytest.raises(UnconfirmedError, match=r"refused.*in the server's memory") as caught:
            await adding
        own_desk.redis.execute_command("ACL", "SETUSER", "default", "+xadd", "+evalsha")
        assert caught.value.accepted is True and caught.value.job_id is not None
        await queue.add("n", 1, job_id=caught.value.job_id)
    assert own_desk.waiting() == 2
