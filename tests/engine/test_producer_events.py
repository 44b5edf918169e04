"""What producers tell: of delayed jobs always, of immediate ones when asked; at no add's cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chasquimq import QueueFullError
from chasquimq.address import read_url
from chasquimq.config import EventOptions, ProducerOptions
from chasquimq.engine.clock import now_ms
from chasquimq.engine.draft import plain
from chasquimq.engine.producer import Producer
from chasquimq.engine.writer import LinkWriter
from chasquimq.happening import Added, Announce
from chasquimq.job import Draft
from chasquimq.observe.stream import EventStream
from chasquimq.store import Dialer, Store
from tests.engine.desk import Desk
from tests.engine.follow import follower, redis_ms, rows, take, tell

HOUR_MS = 3_600_000


def told(desk: Desk, kind: str) -> list[dict[str, str]]:
    return [fields for _, _, fields in rows(desk) if fields["e"] == kind]


# -- delayed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("job_id", [None, "mine"])
@pytest.mark.parametrize("name", ["mail", "naïve-名前", ""])
async def test_a_delayed_add_is_told(desk: Desk, job_id: str | None, name: str) -> None:
    before = redis_ms(desk)
    async with desk.queue() as queue, follower(desk) as events:
        job = await queue.add(name, 1, delay_ms=HOUR_MS, job_id=job_id)
        (event,) = await take(events, 1)
    ((place, names, fields),) = rows(desk)
    assert names == ["e", "id", "ts", *(["n"] if name else []), "delay_ms"]
    known = {"e": "delayed", "id": job.id, "ts": fields["ts"], "delay_ms": str(HOUR_MS)}
    assert fields == (known | {"n": name} if name else known)
    assert before <= int(fields["ts"]) <= redis_ms(desk)
    assert (event.name, event.job_id, event.job_name, event.id) == ("delayed", job.id, name, place)
    assert event.fields == {"ts": int(fields["ts"]), "delay_ms": HOUR_MS}


async def test_an_absolute_time_is_told_as_what_is_left_until_then(desk: Desk) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    async with desk.queue() as queue:
        await queue.add("mail", 1, delay=due)
    (fields,) = told(desk, "delayed")
    due_ms = int(fields["ts"]) + int(fields["delay_ms"])
    assert due_ms == due.timestamp() * 1000 // 1
    assert desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True)[0][1] == due_ms


async def test_a_bulk_tells_of_its_delayed_jobs_alone(desk: Desk) -> None:
    jobs: list[dict[str, Any]] = [{"name": "mail", "data": n} for n in range(100)]
    for number, job in enumerate(jobs[::3]):
        job |= {"delay_ms": HOUR_MS + number} if number % 2 else {"delay": timedelta(hours=2)}
    async with desk.queue() as queue:
        added = await queue.add_bulk(jobs)
    assert {fields["e"] for _, _, fields in rows(desk)} == {"delayed"}
    assert [fields["id"] for fields in told(desk, "delayed")] == [job.id for job in added[::3]]


async def test_an_id_that_is_scheduled_already_is_not_told_again(desk: Desk) -> None:
    async with desk.queue() as queue, desk.queue() as other:
        for producer in (queue, queue, other):
            await producer.add("mail", 1, delay_ms=HOUR_MS, job_id="once")
    assert len(told(desk, "delayed")) == 1


async def test_what_is_sent_again_after_a_lost_answer_is_told_once(own_desk: Desk) -> None:
    jobs = [
        {"name": "n", "data": n, "delay_ms": HOUR_MS, "job_id": f"id-{n}"} for n in range(2_000)
    ]
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        adding = asyncio.ensure_future(queue.add_bulk(jobs))
        while not adding.done():
            own_desk.redis.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.004)
        await adding
    ids = [fields["id"] for fields in told(own_desk, "delayed")]
    assert sorted(ids) == sorted(str(job["job_id"]) for job in jobs)


async def test_an_event_that_cannot_be_written_fails_no_add(desk: Desk) -> None:
    desk.redis.set(desk.keys.events, "in the way")
    async with desk.queue(waiting_events=True) as queue:
        await queue.add("mail", 1, delay_ms=HOUR_MS)
        await queue.add("mail", 2, delay_ms=HOUR_MS, job_id="mine")
        await queue.add_bulk([{"name": "mail", "data": n} for n in range(3)])
    assert (desk.delayed(), desk.waiting()) == (2, 3)
    assert desk.redis.get(desk.keys.events) == b"in the way"


async def test_the_stream_is_kept_short(desk: Desk) -> None:
    jobs = [{"name": "mail", "data": n, "delay_ms": HOUR_MS} for n in range(1_000)]
    async with desk.queue(events_max_stream_len=100) as queue:
        await queue.add_bulk(jobs)
    assert 100 <= len(rows(desk)) < 400  # in blocks of a hundred, as the server likes


@pytest.mark.parametrize("waiting_events", [False, True])
async def test_with_events_off_nothing_is_written(desk: Desk, waiting_events: bool) -> None:
    async with desk.queue(events_enabled=False, waiting_events=waiting_events) as queue:
        await queue.add("mail", 1)
        await queue.add("mail", 1, delay_ms=HOUR_MS)
        await queue.add("mail", 1, delay_ms=HOUR_MS, job_id="mine")
        await queue.add_bulk([{"name": "mail", "data": 1}])
    assert (desk.delayed(), desk.waiting()) == (2, 2)
    assert not desk.redis.exists(desk.keys.events)


async def test_an_immediate_add_tells_nothing_unless_asked(desk: Desk) -> None:
    async with desk.queue() as queue:
        await queue.add("mail", 1)
        await queue.add("mail", 1, job_id="mine", delay_ms=0)
        await queue.add_bulk([{"name": "mail", "data": 1}])
    assert desk.waiting() == 3
    assert not desk.redis.exists(desk.keys.events)


# -- waiting, when asked for -----------------------------------------------------------------------


async def test_an_add_is_told_when_asked_for(desk: Desk) -> None:
    async with desk.queue(waiting_events=True) as queue:
        await queue.add("later", 1, delay_ms=HOUR_MS)
        added = [
            await queue.add("mail", 1),
            await queue.add("", 1, job_id="mine"),
            *await queue.add_bulk([{"name": f"n{n}", "data": n} for n in range(200)]),
        ]
    # Closing has waited for them: they are all there.
    waiting = [row for row in rows(desk) if row[2]["e"] == "waiting"]
    assert [(row[2]["id"], row[2].get("n", "")) for row in waiting] == [
        (job.id, job.name) for job in added
    ]
    assert {tuple(names) for _, names, _ in waiting} == {("e", "id", "ts", "n"), ("e", "id", "ts")}
    assert len(told(desk, "delayed")) == 1


async def test_a_large_bulk_is_told_whole(desk: Desk) -> None:
    async with desk.queue(waiting_events=True) as queue:
        added = await queue.add_bulk([{"name": "n", "data": n} for n in range(10_000)])
        await queue.add("n", 1)
    ids = [fields["id"] for fields in told(desk, "waiting")]
    assert ids[:10_000] == [job.id for job in added]
    assert len(ids) == 10_001


async def test_a_program_that_adds_one_job_trims_the_stream_all_the_same(desk: Desk) -> None:
    tell(desk, *[f"{number}" for number in range(500)])
    async with desk.queue(waiting_events=True, events_max_stream_len=100) as queue:
        await queue.add("n", 1)
    assert len(rows(desk)) <= 201


async def test_only_what_was_accepted_is_told(own_desk: Desk) -> None:
    jobs: list[dict[str, Any]] = [{"name": "n", "data": n, "job_id": f"{n}"} for n in range(10)]
    async with own_desk.queue(waiting_events=True, max_stream_len=15) as queue:
        await queue.add_bulk(jobs)
        with pytest.raises(QueueFullError):
            await queue.add_bulk(jobs)
        own_desk.redis.config_set("maxmemory", 1)
        with pytest.raises(QueueFullError, match="oom"):
            await queue.add("n", 1)
        own_desk.redis.config_set("maxmemory", 0)
    assert [fields["id"] for fields in told(own_desk, "waiting")] == [f"{n}" for n in range(10)]


async def test_broken_connections_cost_events_and_no_add(own_desk: Desk) -> None:
    async with own_desk.queue(waiting_events=True) as queue:
        await queue.add("warm", 1, job_id="warm")
        jobs = [{"name": "n", "data": n, "job_id": f"{n}"} for n in range(3_000)]
        adding = asyncio.ensure_future(queue.add_bulk(jobs))
        while not adding.done():
            own_desk.redis.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.004)
        assert len(await adding) == 3_000
        await queue.add("n", 1, job_id="after")
    ids = [fields["id"] for fields in told(own_desk, "waiting")]
    assert own_desk.waiting() == 3_002
    assert len(ids) == len(set(ids))
    assert ids[-1] == "after"


async def test_a_cancelled_add_is_not_told(own_desk: Desk) -> None:
    async with own_desk.queue(waiting_events=True) as queue:
        await queue.add("warm", 1, job_id="warm")
        own_desk.server.server.pause()
        try:
            adding = asyncio.ensure_future(queue.add("n", 1, job_id="left"))
            await asyncio.sleep(0)
            adding.cancel()
            await asyncio.wait([adding])
            assert adding.cancelled()
        finally:
            own_desk.server.server.resume()
        await queue.add("n", 1, job_id="stayed")
    assert [fields["id"] for fields in told(own_desk, "waiting")] == ["warm", "stayed"]


# -- from inside ----------------------------------------------------------------------------------


class Stage:
    """A producer of which each event comes after something that a test does."""

    def __init__(self, desk: Desk, max_waiting: int = 1_000) -> None:
        self.desk = desk
        dialer = Dialer(read_url(desk.server.url))
        self.store = Store(desk.keys, dialer, desk.server.forced_dialect)
        self.options = ProducerOptions(events=EventOptions(max_waiting=max_waiting))
        self.first: Callable[[], None] = lambda: None

    async def __aenter__(self) -> Stage:
        await self.store.open()
        self.producer = Producer(self.store, self.options, observe=self._observe)
        await self.producer.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.producer.close()
        await self.store.close()

    def _observe(self, writer: LinkWriter) -> Announce:
        self.writer = writer
        hear = EventStream(self.desk.keys, writer, self.options.events).hear

        def announce(happening: Any) -> None:
            if isinstance(happening, Added):
                self.first()
            hear(happening)

        return announce

    async def add(self, count: int) -> list[str]:
        drafts = [Draft(*plain("n", n, self.options)) for n in range(count)]
        ids, order = self.producer.send(drafts, now_ms())
        await order.future
        assert order.errors == {}
        return ids

    def hang_up(self) -> None:
        if self.producer.link.pipe is not None:
            self.producer.link.pipe.close()


async def test_what_finds_the_line_full_is_dropped_and_counted(desk: Desk) -> None:
    async with Stage(desk, max_waiting=60) as stage:
        ids = await stage.add(500)
    assert desk.waiting() == 500
    assert [fields["id"] for fields in told(desk, "waiting")] == ids[:59]
    assert stage.writer.dropped == 500 - 59  # the sixtieth was a trim


async def test_what_finds_the_connection_down_is_dropped_and_counted(desk: Desk) -> None:
    async with Stage(desk) as stage:
        stage.first = stage.hang_up
        await stage.add(3)
        stage.first = lambda: None
        ids = await stage.add(2)
    assert desk.waiting() == 5
    assert [fields["id"] for fields in told(desk, "waiting")] == ids
    assert stage.writer.dropped == 3 + 1  # and a trim


async def test_a_silent_server_does_not_keep_a_queue_from_closing(
    own_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chasquimq.engine.writer.GOODBYE_S", 0.1)
    async with asyncio.timeout(5), Stage(own_desk) as stage:
        stage.first = own_desk.server.server.pause
        await stage.add(1)
    assert stage.writer.dropped == 2, "written, and no answer came"
    own_desk.server.server.resume()
    assert own_desk.waiting() == 1
