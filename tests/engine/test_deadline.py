"""No add waits for longer than `add_timeout_ms`, and its error says what is known of the job.

"Nothing was sent" is a promise: such a job never comes in, also not when the server is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from chasquimq import (
    Job,
    Producer,
    Queue,
    QueueFullError,
    RepeatPattern,
    StoreUnavailableError,
    UnconfirmedError,
    sync,
)
from tests.chaos.kit.proxy import Proxy
from tests.engine.desk import Desk, deafened, eventually, producer_of

LIMIT_MS = 600
PATIENCE_S = 8.0  # less than any other limit that an add had


@pytest.fixture
def thawing(own_desk: Desk) -> Iterator[Desk]:
    """A server that is running at the end, whatever a test did to it."""
    yield own_desk
    with contextlib.suppress(Exception):
        own_desk.server.server.resume()


@contextlib.asynccontextmanager
async def frozen(desk: Desk) -> AsyncIterator[None]:
    desk.server.server.pause()
    try:
        yield
    finally:
        desk.server.server.resume()


async def error_of(adding: Any) -> Exception:
    """What an add raised, in the time that it has."""
    with pytest.raises((StoreUnavailableError, UnconfirmedError, QueueFullError)) as caught:
        async with asyncio.timeout(PATIENCE_S):
            await adding
    return caught.value


async def back(queue: Queue) -> None:
    """Wait until its connection is there, and everything on it is answered."""

    def answered() -> bool:
        pipe = producer_of(queue).link.pipe
        return pipe is not None and pipe.idle

    await eventually(answered)


def ids(desk: Desk) -> list[str]:
    return [envelope.id for envelope in desk.envelopes()]


KINDS: list[Any] = [
    pytest.param({}, id="plain"),
    pytest.param({"job_id": "mine"}, id="own id"),
    pytest.param({"job_id": "mine", "unique": "until_done"}, id="unique"),
    pytest.param({"delay_ms": 3_600_000}, id="delayed"),
    pytest.param({"delay_ms": 3_600_000, "job_id": "mine"}, id="delayed own id"),
]


@pytest.mark.parametrize("options", KINDS)
async def test_a_frozen_server_leaves_an_add_unconfirmed(
    thawing: Desk, options: dict[str, Any]
) -> None:
    async with thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1)
        async with frozen(thawing):
            began = time.monotonic()
            error = await error_of(queue.add("n", 1, **options))
            assert time.monotonic() - began < LIMIT_MS / 1000 + 1
        assert isinstance(error, UnconfirmedError) and error.accepted is None
        assert error.job_id and error.job_id == options.get("job_id", error.job_id)
        assert "add_timeout_ms" in str(error) and "may be in, or not" in str(error)
        safe = "job_id='mine' through the same Queue or Producer is safe" in str(error)
        assert safe == ("job_id" in options)
        await back(queue)
        await queue.add("after", 1)
        if safe:  # as the error says
            await queue.add("n", 1, **options)
    here = thawing.waiting() + thawing.delayed()
    assert here == 3 if safe else here in (2, 3)
    assert len(set(ids(thawing))) == thawing.waiting()


async def test_what_is_in_line_behind_a_broken_connection_never_comes_in(thawing: Desk) -> None:
    """One add was on its way when the connection broke, two came while there was none."""
    async with thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1, job_id="warm")
        pipe, _ = deafened(queue)
        sent = asyncio.ensure_future(queue.add("sent", 1, job_id="sent"))
        await eventually(lambda: thawing.waiting() == 2)
        async with frozen(thawing):
            pipe.close()
            late = [
                asyncio.ensure_future(queue.add("late", 1)),
                asyncio.ensure_future(queue.add("late", 1, job_id="late", delay_ms=10)),
            ]
            assert isinstance(await error_of(sent), UnconfirmedError)
            for adding in late:
                error = await error_of(adding)
                assert isinstance(error, StoreUnavailableError)
                assert "nothing was sent" in str(error)
        await back(queue)
        assert isinstance(await queue.add("after", 1), Job)
    assert ids(thawing)[1] == "sent" and thawing.waiting() == 3
    assert thawing.delayed() == 0


async def test_a_server_that_is_gone_for_good(own_desk: Desk) -> None:
    async with own_desk.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1)
        own_desk.server.server.kill()
        await eventually(lambda: producer_of(queue).link.pipe is None)
        error = await error_of(queue.add("n", 1))
        assert isinstance(error, StoreUnavailableError) and "nothing was sent" in str(error)
        bulk = await error_of(queue.add_bulk([{"name": "n", "data": n} for n in range(200)]))
        assert isinstance(bulk, StoreUnavailableError)
        assert len(bulk.outcomes) == 200
        assert all("nothing was sent" in str(one) for one in bulk.outcomes)
        spec = await error_of(queue.add("n", 1, repeat=RepeatPattern.every(60_000)))
        assert isinstance(spec, StoreUnavailableError)
        own_desk.server.server.start()
        await back(queue)
        await queue.add("after", 1)
    assert own_desk.waiting() == 2


async def test_a_bulk_says_of_each_job_what_is_known(thawing: Desk) -> None:
    """More than may be unanswered at a time: the rest was never sent."""
    async with thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1)
        async with frozen(thawing):
            error: Any = await error_of(
                queue.add_bulk([{"name": "n", "data": n} for n in range(12_000)])
            )
        assert isinstance(error, UnconfirmedError)
        kinds = {type(one) for one in error.outcomes}
        assert kinds == {UnconfirmedError, StoreUnavailableError}
        sent = {one.job_id for one in error.outcomes if isinstance(one, UnconfirmedError)}
        await back(queue)
        await queue.add("after", 1)
        await queue.add("after", 1)
    there = ids(thawing)
    assert len(there) == len(set(there))
    assert len(set(there) - sent) == 3


async def test_a_durable_add(thawing: Desk) -> None:
    thawing.redis.config_set("appendfsync", "always")
    async with thawing.queue(add_timeout_ms=LIMIT_MS, durability="local") as queue:
        await queue.add("warm", 1)
        async with frozen(thawing):
            first = asyncio.ensure_future(queue.add("n", 1))
            await asyncio.sleep(0.01)
            second = asyncio.ensure_future(queue.add("n", 2))
            error: Any = await error_of(first)
            waited = await error_of(second)
        assert isinstance(error, UnconfirmedError)
        assert isinstance(waited, StoreUnavailableError)  # one write at a time: it was in line
        await back(queue)
        await queue.add("n", 1, job_id=error.job_id)
    assert ids(thawing).count(error.job_id) == 1
    assert thawing.waiting() == 2


async def test_a_black_hole(own_desk: Desk) -> None:
    port = own_desk.server.server.port
    assert port is not None
    with Proxy(port) as proxy:
        async with own_desk.queue(redis_url=proxy.url, add_timeout_ms=LIMIT_MS) as queue:
            await queue.add("warm", 1)
            proxy.black_hole()
            error = await error_of(queue.add("n", 1))
            assert isinstance(error, UnconfirmedError)
            proxy.heal()
            await back(queue)
            await queue.add("after", 1)
        assert own_desk.waiting() in (2, 3)
        assert len(set(ids(own_desk))) == own_desk.waiting()


async def test_opening_counts(thawing: Desk) -> None:
    async with frozen(thawing), thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        for adding in (queue.add("n", 1), queue.add_bulk([{"name": "n", "data": 1}])):
            error = await error_of(adding)
            assert isinstance(error, StoreUnavailableError)
            assert "nothing was sent" in str(error) and "add_timeout_ms" in str(error)
    assert thawing.waiting() == 0


async def test_the_first_add_of_a_queue_has_its_deadline_too(own_desk: Desk) -> None:
    port = own_desk.server.server.port
    assert port is not None
    jobs = [{"name": "n", "data": 1}]
    for add in (lambda queue: queue.add("n", 1), lambda queue: queue.add_bulk(jobs)):
        with Proxy(port) as proxy:
            proxy.hold("XADD")  # it connects, and hears nothing after its first job
            queue = own_desk.queue(redis_url=proxy.url, add_timeout_ms=LIMIT_MS)
            assert isinstance(await error_of(add(queue)), UnconfirmedError)
            proxy.heal()
            await queue.close()


async def test_a_spec(thawing: Desk) -> None:
    async with thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1)
        async with frozen(thawing):
            error = await error_of(queue.add("n", 1, repeat=RepeatPattern.every(60_000)))
        assert isinstance(error, UnconfirmedError) and "Writing it again is safe" in str(error)


async def test_a_spec_whose_connection_breaks(own_desk: Desk) -> None:
    """Before it was written nothing was sent; behind that nobody knows."""
    port = own_desk.server.server.port
    assert port is not None
    pattern = RepeatPattern.every(60_000)
    with Proxy(port) as proxy:
        async with own_desk.queue(redis_url=proxy.url) as queue:
            await queue.counts()
            for nth, kind, said, specs in (
                (1, StoreUnavailableError, "nothing was sent: ", 0),
                (4, UnconfirmedError, "may be written, or not. Writing it again is safe", 1),
            ):
                own_desk.redis.script_flush()  # each is asked, loaded and asked again
                cut = proxy.cut(nth, command="EVALSHA")
                error = await error_of(queue.add("n", 1, repeat=pattern))
                assert cut.done and isinstance(error, kind) and said in str(error)
                assert own_desk.redis.zcard(own_desk.keys.repeat) == specs


async def test_a_unique_id_is_free_when_its_job_is_done(thawing: Desk) -> None:
    """So adding it again is said to be safe until then, and not for some seconds."""
    ran: list[int] = []

    async def handle(job: Job) -> None:
        ran.append(job.data)

    unique: dict[str, Any] = {"job_id": "mine", "unique": "until_done"}
    async with thawing.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 0, job_id="warm", unique="until_done")
        async with frozen(thawing):
            for more in ({}, {"delay_ms": 60_000}, {"unique_for": 60_000}):
                error = await error_of(queue.add("n", 1, **unique | more))
                assert "with unique='until_done', as long as it is not done" in str(error)
                assert "comes in once" not in str(error)
        await back(queue)
        await queue.run_now("mine")
        async with thawing.working(handle):
            await eventually(lambda: 1 in ran)
            await thawing.settled()
            assert not (await queue.add("n", 2, **unique)).duplicate
            await eventually(lambda: 2 in ran)


async def test_nothing_was_sent_where_no_connection_came(own_desk: Desk) -> None:
    own_desk.server.server.kill()
    async with own_desk.queue() as queue:
        for options in ({}, {"delay_ms": 5}, {"repeat": RepeatPattern.every(60_000)}):
            error = await error_of(queue.add("n", 1, **options))
            assert isinstance(error, StoreUnavailableError)
            assert "nothing was sent: cannot reach Redis" in str(error)
        bulk: Any = await error_of(queue.add_bulk([{"name": "n", "data": n} for n in range(3)]))
        assert "nothing was sent" in str(bulk) and bulk.outcomes == [bulk] * 3
    own_desk.server.server.start()


async def test_nothing_was_sent_where_the_question_for_room_broke(own_desk: Desk) -> None:
    port = own_desk.server.server.port
    assert port is not None
    with Proxy(port) as proxy:
        async with own_desk.queue(redis_url=proxy.url, max_stream_len=1) as queue:
            await queue.add("first", 1)
            proxy.cut(1, command="XLEN")
            error = await error_of(queue.add("n", 1))
            assert isinstance(error, StoreUnavailableError)
            assert "nothing was sent: the connection to" in str(error)
    assert own_desk.waiting() == 1


async def test_the_native_door(thawing: Desk) -> None:
    door = Producer(
        thawing.server.url,
        thawing.name,
        dialect=thawing.server.forced_dialect,
        add_timeout_ms=LIMIT_MS,
    )
    await door.add(b"1")
    async with frozen(thawing):
        for adding in (door.add(b"2"), door.add_bulk([b"3", b"4"])):
            assert isinstance(await error_of(adding), UnconfirmedError)
    await door.shutdown()
    assert thawing.waiting() == len(set(ids(thawing))) <= 4


def test_the_synchronous_queue(thawing: Desk) -> None:
    with sync.Queue(
        thawing.name,
        redis_url=thawing.server.url,
        dialect=thawing.server.forced_dialect,
        add_timeout_ms=LIMIT_MS,
    ) as queue:
        queue.add("warm", 1)
        thawing.server.server.pause()
        began = time.monotonic()
        try:
            with pytest.raises(UnconfirmedError):
                queue.add("n", 1)
        finally:
            thawing.server.server.resume()
        assert time.monotonic() - began < PATIENCE_S


async def test_waiting_for_room_is_bounded_only_where_that_was_asked_for(desk: Desk) -> None:
    async with desk.queue(max_stream_len=1, on_full="wait", add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("first", 1)
        for adding in (queue.add("n", 1), queue.add_bulk([{"name": "n", "data": 1}])):
            error = await error_of(adding)
            assert isinstance(error, QueueFullError)
            assert "no room within 600 ms" in str(error) and "Nothing was sent" in str(error)
    async with desk.queue(max_stream_len=1, on_full="wait") as patient:
        adding = asyncio.ensure_future(patient.add("n", 1))
        await eventually(lambda: patient._here().live)
        producer_of(patient)._deadline.s = 0.1
        looks = desk.redis.info("commandstats")["cmdstat_xlen"]["calls"]

        def waited() -> bool:  # for many times as long as Redis may take for an answer
            return bool(desk.redis.info("commandstats")["cmdstat_xlen"]["calls"] > looks + 4)

        await eventually(waited)
        assert not adding.done()
        desk.redis.delete(desk.keys.stream)
        assert isinstance(await adding, Job)
    assert desk.waiting() == 1


async def test_an_add_that_is_cancelled_in_line_is_not_sent(thawing: Desk) -> None:
    async with thawing.queue() as queue:
        await queue.add("warm", 1)
        pipe = producer_of(queue).link.pipe
        assert pipe is not None
        async with frozen(thawing):
            pipe.close()
            adding = [
                asyncio.ensure_future(queue.add("n", 1)),
                asyncio.ensure_future(queue.add("n", 1, job_id="mine")),
                asyncio.ensure_future(queue.add_bulk([{"name": "n", "data": n} for n in (1, 2)])),
            ]
            stays = asyncio.ensure_future(queue.add("stays", 1))
            await eventually(lambda: len(producer_of(queue)._line) >= 2)
            for one in adding:
                one.cancel()
            await asyncio.wait(adding)
        await stays
        assert not producer_of(queue)._line
    assert thawing.waiting() == 2


async def test_an_event_loop_that_stood_still_takes_no_answer_for_missing(desk: Desk) -> None:
    async with desk.queue(add_timeout_ms=LIMIT_MS) as queue:
        await queue.add("warm", 1)
        adding = [asyncio.ensure_future(queue.add("n", n)) for n in range(100)]
        await asyncio.sleep(0)
        time.sleep(2 * LIMIT_MS / 1000)
        assert all(isinstance(job, Job) for job in await asyncio.gather(*adding))
        assert len(queue._sessions._by_loop) == 1


def test_the_time_that_an_add_has_by_default() -> None:
    from chasquimq.address import read_url
    from chasquimq.config import DurabilityOptions, ProducerOptions
    from chasquimq.engine.deadline import Deadline

    where = read_url("redis://:secret@host")  # not a secret
    usual = Deadline(ProducerOptions(), where)
    slow = ProducerOptions(durable=DurabilityOptions(durability_timeout_ms=60_000))
    assert (usual.ms, usual.for_room) == (15_000, False)
    assert Deadline(slow, where).ms == 15_000
    assert Deadline(slow, where, durable=True).ms == 65_000
    given = Deadline(ProducerOptions(add_timeout_ms=200), where, durable=True)
    assert (given.ms, given.for_room, given.tick_s) == (200, True, 0.05)
    for error in (usual.unsent(), usual.unopened(), usual.unanswered("id", 0)):
        assert "secret" not in str(error) and "host" in str(error)


async def test_a_queue_refuses_a_limit_that_is_none() -> None:
    with pytest.raises(ValueError, match="add_timeout_ms must be from 1"):
        Queue("q", add_timeout_ms=0)
