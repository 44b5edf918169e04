"""A server of another kind takes the place of the first one at the same address.

A worker and a Queue live through it: what is added afterwards runs and is acked, adds come in, and
health is true.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from chasquimq import Job, Queue, StoreError, StoreUnavailableError, UnconfirmedError, Worker
from chasquimq.server import Server
from tests.engine.desk import Desk, deafened, eventually, producer_of
from tests.servers import CONFIG, THREE, Dialect, DialectServer, binary_for, disposable

NATIVE, VALKEY = THREE[0], THREE[2]
WAYS = [
    pytest.param(NATIVE, VALKEY, id="to valkey"),
    pytest.param(VALKEY, NATIVE, id="to redis"),
]


class Place:
    """An address at which one server follows another, each with an empty memory."""

    def __init__(self, first: Dialect, second: Dialect) -> None:
        self._next = binary_for(second)
        self.now = Server(binary_for(first), config=CONFIG).start()
        assert self.now.port is not None
        self.port: int = self.now.port

    def replace(self) -> Desk:
        self.now.kill()
        self.now = Server(self._next, port=self.port, config=CONFIG).start()
        return self.desk()

    def desk(self) -> Desk:
        return Desk(DialectServer("place", self.now, None), "replaced")


@contextmanager
def place_of(first: Dialect, second: Dialect) -> Iterator[Place]:
    place = Place(first, second)
    try:
        yield place
    finally:
        place.now.kill()


@asynccontextmanager
async def working(place: Place, ran: list[Any], **options: Any) -> AsyncIterator[Worker]:
    async def handle(job: Job) -> None:
        ran.append(job.data)

    async with place.desk().working(handle, **options) as worker:
        yield worker


@pytest.mark.parametrize(("first", "second"), WAYS)
async def test_a_worker_and_a_queue_live_through_it(first: Dialect, second: Dialect) -> None:
    ran: list[Any] = []
    with place_of(first, second) as place:
        async with working(place, ran) as worker, place.desk().queue() as queue:
            before = worker.dialect
            await queue.add_bulk([{"name": "n", "data": n} for n in range(100)])
            await queue.add("n", 100, job_id="own")
            await eventually(lambda: len(ran) == 101)
            desk = place.replace()
            await eventually(lambda: desk.redis.exists(desk.keys.stream))
            await queue.add_bulk([{"name": "n", "data": n} for n in range(200, 300)])
            for n in range(300, 350):
                await queue.add("n", n)
            await queue.add("n", 350, job_id="other")
            await queue.add("n", 351, job_id="later", delay_ms=50)
            await eventually(lambda: sorted(ran[101:]) == list(range(200, 352)))
            await eventually(lambda: desk.waiting() == 0 and desk.pending() == [])
            await eventually(lambda: worker.health().healthy)
            assert worker.dialect != before
            assert producer_of(queue)._dialect.name == worker.dialect
    assert len(ran) == 101 + 152


@pytest.mark.parametrize(("first", "second"), WAYS)
async def test_what_waits_in_line_is_written_anew(first: Dialect, second: Dialect) -> None:
    with place_of(first, second) as place:
        async with place.desk().queue(max_stream_len=1_000, on_full="trim") as queue:
            await queue.add("warm", 0)
            place.now.kill()
            await eventually(lambda: producer_of(queue).link.pipe is None)
            adding = [
                asyncio.ensure_future(queue.add("n", 1)),
                asyncio.ensure_future(queue.add("n", 2, job_id="mine")),
                asyncio.ensure_future(queue.add("n", 3, job_id="one", unique="until_done")),
                asyncio.ensure_future(queue.add("n", 4, delay_ms=3_600_000)),
                asyncio.ensure_future(queue.add("n", 5, attempts=3)),
                asyncio.ensure_future(queue.add_bulk([{"name": "", "data": n} for n in (6, 7)])),
            ]
            await eventually(lambda: len(producer_of(queue)._line) >= 2)
            place.now = Server(place._next, port=place.port, config=CONFIG).start()
            added = await asyncio.gather(*adding)
            again = await queue.add("n", 2, job_id="mine")
            assert again.id == "mine"
            desk = place.desk()
            ids = [one.id for one in desk.envelopes()]
            assert sorted(ids) == sorted(
                [added[n].id for n in (0, 1, 2, 4)] + [job.id for job in added[5]]
            )
            assert desk.delayed() == 1


@pytest.mark.parametrize(("first", "second"), WAYS)
async def test_what_the_other_server_may_have_is_not_sent_again(
    first: Dialect, second: Dialect
) -> None:
    with place_of(first, second) as place:
        async with place.desk().queue() as queue:
            await queue.add("warm", 0, job_id="warm")
            deafened(queue)
            adding = [
                asyncio.ensure_future(queue.add("n", 1)),
                asyncio.ensure_future(queue.add("n", 2, job_id="mine")),
            ]
            await eventually(lambda: place.desk().waiting() == 3)
            desk = place.replace()
            outcomes = await asyncio.gather(*adding, return_exceptions=True)
            assert [type(one) for one in outcomes] == [UnconfirmedError] * 2
            await queue.add("n", 3)
            assert desk.waiting() == 1


async def test_a_worker_sets_up_the_stream_as_the_new_server_can() -> None:
    with place_of(VALKEY, NATIVE) as place:
        async with working(place, []) as worker:
            await eventually(lambda: worker.health().healthy)
            consumer = worker._consumer
            assert consumer is not None
            speak, consumer._jobs.speak = consumer._jobs.speak, lambda name: None  # type: ignore[method-assign,misc]
            desk = place.replace()  # and the connection of acks is the last one that is mended
            await eventually(lambda: desk.redis.exists(desk.keys.stream))
            consumer._jobs.speak = speak  # type: ignore[method-assign]
            told = desk.redis.execute_command("XINFO", "STREAM", desk.keys.stream)
            facts = (
                told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
            )
            found = {str(key).strip("b'"): value for key, value in facts.items()}
            assert found["idmp-maxsize"] == 10_000


async def test_a_server_that_changes_behind_an_open_connection() -> None:
    """As behind a balancer that keeps the client's connection: only the answers tell."""
    ran: list[Any] = []
    with place_of(VALKEY, VALKEY) as place:
        async with working(place, ran) as worker, place.desk().queue() as queue:
            await queue.add("n", 0)
            await eventually(lambda: len(ran) == 1)
            producer, consumer = producer_of(queue), worker._consumer
            assert consumer is not None
            producer._speak("native")  # as if the first server had spoken it
            consumer._jobs.speak("native")
            await queue.add("n", 201, job_id="mine")  # the script is not known there either
            jobs = [{"name": "n", "data": n} for n in range(1, 200)]
            producer._speak("native")
            await asyncio.gather(queue.add_bulk(jobs), queue.add("n", 200))
            await eventually(lambda: sorted(ran) == list(range(202)))
            desk = place.desk()
            await eventually(lambda: desk.waiting() == 0 and desk.pending() == [])
            await eventually(lambda: worker.health().healthy)
            assert producer._dialect.name == worker.dialect == "portable"


async def test_a_forced_dialect_that_the_server_does_not_speak(queue_name: str) -> None:
    with disposable(Server(binary_for(VALKEY))) as server:
        queue = Queue(queue_name, redis_url=server.url, dialect="native")
        with pytest.raises(StoreError, match=r"dialect='native' was forced.*Leave dialect out"):
            await queue.add("n", 1)
        await queue.close()
        worker = Worker(queue_name, print, redis_url=server.url, dialect="native")
        with pytest.raises(StoreError, match="dialect='native' was forced"):
            await worker.run()


async def test_a_forced_dialect_that_the_next_server_does_not_speak() -> None:
    async def handle(job: Job) -> None: ...

    with place_of(NATIVE, VALKEY) as place:
        url = place.now.url
        queue = Queue("replaced", redis_url=url, dialect="native", add_timeout_ms=1_000)
        worker = Worker("replaced", handle, redis_url=url, dialect="native")
        running = asyncio.ensure_future(worker.run())
        await queue.add("n", 1)
        await eventually(lambda: worker.health().healthy)
        place.replace()

        def told() -> bool:
            return any("dialect='native' was forced" in one for one in worker.health().problems)

        await eventually(told)
        assert not worker.health().healthy
        with pytest.raises(StoreUnavailableError, match="dialect='native' was forced"):
            await queue.add("n", 2)
        await queue.close()
        await worker.close()
        await running
