"""What `add` leaves in Redis."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from chasquimq import (
    ArgumentError,
    BackoffSpec,
    Job,
    QueueFullError,
    RepeatPattern,
    UnconfirmedError,
    wire,
)
from chasquimq.job import RetryOverride
from tests.engine.desk import Desk, deafened, eventually

ULID = set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


async def test_a_job_is_an_entry_with_its_envelope_and_its_name(desk: Desk) -> None:
    async with desk.queue() as queue:
        job = await queue.add("welcome", {"user": 42})
    [(_, fields)] = desk.redis.xrange(desk.keys.stream)
    assert list(fields) == [b"d", b"n"]
    assert fields[b"n"] == b"welcome"
    envelope = wire.unpack_envelope(fields[b"d"])
    assert fields[b"d"] == wire.pack_envelope(envelope)
    assert wire.decode(envelope.payload) == {"user": 42}
    assert (envelope.id, envelope.created_at_ms) == (job.id, job.created_at_ms)
    assert (envelope.attempt, envelope.retry) == (0, None)
    assert len(job.id) == 26
    assert set(job.id) <= ULID
    assert job == Job(job.id, "welcome", {"user": 42}, 0, job.created_at_ms)


async def test_a_job_without_a_name_has_no_name_field(desk: Desk) -> None:
    async with desk.queue() as queue:
        await queue.add("", None)
    [(_, fields)] = desk.redis.xrange(desk.keys.stream)
    assert list(fields) == [b"d"]


@pytest.mark.parametrize("size", [0, 255, 256, 65_535, 65_536])
async def test_payloads_of_every_header_width_arrive(desk: Desk, size: int) -> None:
    async with desk.queue() as queue:
        await queue.add("blob", b"x" * size)
        await queue.add_bulk([{"name": "blob", "data": b"x" * size}])
    assert [wire.decode(envelope.payload) for envelope in desk.envelopes()] == [b"x" * size] * 2


RETRIES: list[tuple[dict[str, Any], RetryOverride]] = [
    ({"attempts": 3}, RetryOverride(3, None)),
    ({"attempts": 0}, RetryOverride(0, None)),
    ({"backoff": 500}, RetryOverride(None, BackoffSpec("fixed", 500))),
    (
        {"attempts": 7, "backoff": BackoffSpec.exponential(250, max_ms=10_000, jitter_ms=50)},
        RetryOverride(7, BackoffSpec("exponential", 250, 10_000, 2.0, 50)),
    ),
    (
        {"backoff": {"kind": "fixed", "delay_ms": 80}},
        RetryOverride(None, BackoffSpec("fixed", 80)),
    ),
]


@pytest.mark.parametrize(("options", "expected"), RETRIES)
async def test_a_job_carries_its_own_retry_rules(
    desk: Desk, options: dict[str, Any], expected: RetryOverride
) -> None:
    async with desk.queue() as queue:
        await queue.add("r", 1, **options)
    assert [envelope.retry for envelope in desk.envelopes()] == [expected]


DELAYS = [
    ({"delay_ms": 60_000}, 60_000),
    ({"delay_ms": 60_000.9}, 60_000),
    ({"delay": 60_000}, 60_000),
    ({"delay": timedelta(minutes=1)}, 60_000),
    ({"delay_ms": timedelta(minutes=1)}, 60_000),
    ({"delay_ms": 60_000, "attempts": 2}, 60_000),
    ({"delay_ms": 60_000, "job_id": "mine"}, 60_000),
]


@pytest.mark.parametrize(("options", "delay_ms"), DELAYS)
async def test_a_delay_is_counted_from_redis_time(
    desk: Desk, options: dict[str, Any], delay_ms: int
) -> None:
    before = redis_ms(desk)
    async with desk.queue() as queue:
        job = await queue.add("later", {"a": 1}, **options)
    [(member, score)] = desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True)
    assert before + delay_ms <= score <= redis_ms(desk) + delay_ms
    name, envelope = wire.split_member(member)
    assert name == b"later"
    assert wire.unpack_envelope(envelope).id == job.id
    assert member[:4] == b"\x05\x00\x00\x00"
    assert desk.waiting() == 0


async def test_a_moment_is_kept_to_the_millisecond(desk: Desk) -> None:
    moment = datetime(2090, 12, 1, 8, 30, 0, 123_000, tzinfo=UTC)
    async with desk.queue(max_delay_secs=0) as queue:
        await queue.add("at", 1, delay_ms=moment)
        await queue.add("at", 2, delay=moment.replace(tzinfo=None))
    scores = {score for _, score in desk.redis.zrange(desk.keys.delayed, 0, -1, withscores=True)}
    assert scores == {moment.timestamp() * 1000}


@pytest.mark.parametrize("when", [0, timedelta(0), datetime(2001, 1, 1, tzinfo=UTC)])
async def test_a_job_that_is_due_already_goes_to_the_stream(desk: Desk, when: Any) -> None:
    async with desk.queue() as queue:
        await queue.add("now", 1, delay_ms=when)
    assert (desk.waiting(), desk.delayed()) == (1, 0)


async def test_an_id_comes_in_once_per_queue_object(desk: Desk) -> None:
    async with desk.queue() as queue:
        first = await queue.add_unique("u", {"n": 1}, job_id="order-1")
        await queue.add_unique("u", {"n": 2}, job_id="order-1")
        for number in range(300):  # ordinary adds do not push it out
            await queue.add("noise", number)
        await queue.add("u", {"n": 3}, job_id="order-1")
    mine = [envelope for envelope in desk.envelopes() if envelope.id == "order-1"]
    assert [wire.decode(envelope.payload) for envelope in mine] == [{"n": 1}]
    assert first.id == "order-1"


async def test_a_delayed_id_comes_in_once_for_everybody(desk: Desk) -> None:
    async with desk.queue() as one, desk.queue() as other:
        await one.add_unique("u", 1, job_id="order-1", delay_ms=60_500)
        await other.add_unique("u", 2, job_id="order-1", delay_ms=10)
    assert desk.delayed() == 1
    [member] = desk.redis.zrange(desk.keys.delayed, 0, -1)
    assert desk.redis.get(desk.keys.didx("order-1")) == member
    assert desk.redis.get(desk.keys.dlid("order-1")) == b"1"
    assert desk.redis.ttl(desk.keys.dlid("order-1")) in (3659, 3660)
    assert desk.redis.ttl(desk.keys.didx("order-1")) in (3659, 3660)


async def test_a_delayed_job_can_be_cancelled_until_it_is_due(desk: Desk) -> None:
    async with desk.queue() as queue:
        await queue.add("u", 1, job_id="mine", delay_ms=60_000)
        assert await queue.cancel_delayed("mine") is True
        assert await queue.cancel_delayed("mine") is False
        assert await queue.cancel_delayed("unheard of") is False
        assert desk.delayed() == 0
        assert not desk.redis.exists(desk.keys.dlid("mine"), desk.keys.didx("mine"))
        await queue.add("u", 2, job_id="mine", delay_ms=60_000)  # the id is free again
    assert desk.delayed() == 1


async def test_a_bulk_carries_any_options(desk: Desk) -> None:
    jobs = [
        {"name": "plain", "data": 1},
        {"name": "mine", "data": 2, "job_id": "x1"},
        {"name": "later", "data": 3, "delay": timedelta(minutes=5)},
        {"name": "stubborn", "data": 4, "attempts": 9, "backoff": 5},
        {"name": "mine later", "data": 5, "job_id": "x2", "delay_ms": 60_000},
        {"name": "", "data": 6},
    ]
    async with desk.queue() as queue:
        added = await queue.add_bulk(jobs)
    assert [(job.name, job.data) for job in added] == [(job["name"], job["data"]) for job in jobs]
    assert [job.id for job in added][1::3] == ["x1", "x2"]
    assert [envelope.id for envelope in desk.envelopes()] == [added[n].id for n in (0, 1, 3, 5)]
    assert desk.delayed() == 2


async def test_a_large_bulk_arrives_whole_and_in_order(desk: Desk) -> None:
    async with desk.queue() as queue:
        added = await queue.add_bulk([{"name": "n", "data": n} for n in range(12_345)])
    envelopes = desk.envelopes()
    assert [wire.decode(envelope.payload) for envelope in envelopes] == list(range(12_345))
    assert [envelope.id for envelope in envelopes] == [job.id for job in added]
    assert len({job.id for job in added}) == 12_345


async def test_a_bulk_may_come_from_a_generator(desk: Desk) -> None:
    async with desk.queue() as queue:
        added = await queue.add_bulk({"name": "n", "data": n} for n in range(3))
        added += await queue.add_bulk({"name": "n", "data": n, "attempts": 2} for n in range(3, 5))
    assert [job.data for job in added] == [0, 1, 2, 3, 4]
    assert desk.waiting() == 5


@pytest.mark.parametrize(
    ("jobs", "message", "notes"),
    [
        ({"name": "a", "data": 1}, "add_bulk takes a list of jobs, got dict", []),
        (None, "add_bulk takes a list of jobs, got NoneType", []),
        (
            [{"name": "a", "data": 1}, ("b", 2)],
            "a job of add_bulk is a dict with 'name' and 'data', got tuple",
            ["job 1 of the bulk; nothing was sent"],
        ),
        (
            ["a", {"name": "b", "data": 1, "repeat": RepeatPattern.every(1000)}],
            "a job of add_bulk is a dict with 'name' and 'data', got str",
            ["job 0 of the bulk; nothing was sent"],
        ),
    ],
)
async def test_what_is_no_bulk_is_said_to_be_none(
    desk: Desk, jobs: Any, message: str, notes: list[str]
) -> None:
    async with desk.queue() as queue:
        with pytest.raises(ArgumentError, match=message) as caught:
            await queue.add_bulk(jobs)
    assert getattr(caught.value, "__notes__", []) == notes


async def test_an_empty_bulk_sends_nothing(desk: Desk) -> None:
    async with desk.queue() as queue:
        assert await queue.add_bulk([]) == []
    assert not desk.redis.exists(desk.keys.stream)


BAD_JOBS = [
    {"name": "x"},
    {"name": "x", "data": 1, "dealy": 5},
    {"name": "x" * 300, "data": 1},
    {"name": "x", "data": object()},
    {"name": "x", "data": 1, "delay_ms": -1},
    {"name": "x", "data": b"x" * 1_100_000},
]


@pytest.mark.parametrize("bad", BAD_JOBS, ids=lambda job: "-".join(job))
async def test_one_bad_job_stops_a_bulk_before_anything_is_sent(
    desk: Desk, bad: dict[str, Any]
) -> None:
    async with desk.queue() as queue:
        with pytest.raises((ValueError, TypeError)) as caught:
            await queue.add_bulk([{"name": "good", "data": 1}, bad])
    assert "job 1 of the bulk" in "".join(caught.value.__notes__)
    assert desk.waiting() == 0


async def test_adds_of_many_tasks_arrive_once_each(desk: Desk) -> None:
    async with desk.queue() as queue, asyncio.TaskGroup() as group:
        tasks = [group.create_task(queue.add("t", n)) for n in range(1000)]
    assert {envelope.id for envelope in desk.envelopes()} == {task.result().id for task in tasks}
    assert desk.waiting() == 1000


async def test_a_full_queue_refuses_and_keeps_what_it_has(desk: Desk) -> None:
    async with desk.queue(max_stream_len=10) as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(10)])
        with pytest.raises(QueueFullError, match=r"CMQ-030.*10 jobs of at most 10"):
            await queue.add("n", 10)
        with pytest.raises(QueueFullError) as caught:
            await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
        assert [type(outcome) for outcome in caught.value.outcomes] == [QueueFullError] * 3
        assert desk.waiting() == 10
        await queue.add("later", 1, delay_ms=60_000)  # delayed jobs do not count
        desk.redis.xtrim(desk.keys.stream, maxlen=5, approximate=False)
        await queue.add("n", 11)  # someone else drained it: that is noticed
    assert desk.waiting() == 6


async def test_delayed_jobs_take_no_room_while_they_are_on_their_way(desk: Desk) -> None:
    async with desk.queue(max_stream_len=10) as queue:
        await queue.add("n", 0)
        await queue.add("n", 0, delay_ms=3_600_000)  # from here on the server knows the script
        pipe, unheard = deafened(queue)
        later = [{"name": "n", "data": n, "delay_ms": 3_600_000} for n in range(20)]
        adding = [asyncio.ensure_future(queue.add_bulk(later))]
        adding.append(asyncio.ensure_future(queue.add("n", 0, delay_ms=3_600_000)))
        await eventually(lambda: desk.delayed() == 22)
        adding.append(asyncio.ensure_future(queue.add("n", 1)))
        adding.append(asyncio.ensure_future(queue.add_bulk([{"name": "n", "data": 2}] * 8)))
        await eventually(lambda: desk.waiting() == 10 or any(one.done() for one in adding))
        full = queue.add("n", 3)  # those of which nothing is known yet take their room
        with pytest.raises(QueueFullError, match="10 jobs of at most 10"):
            await full
        del pipe.data_received  # it hears again
        pipe.data_received(b"".join(unheard))
        await asyncio.gather(*adding)
    assert (desk.waiting(), desk.delayed()) == (10, 22)


async def test_a_short_lived_producer_meets_the_limit_too(desk: Desk) -> None:
    for number in range(5):
        desk.put(f"foreign-{number}")
    async with desk.queue(max_stream_len=5) as queue:
        with pytest.raises(QueueFullError):
            await queue.add("n", 1)
    assert desk.waiting() == 5


async def test_a_producer_may_wait_for_room(desk: Desk) -> None:
    async with desk.queue(max_stream_len=3, on_full="wait") as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(3)])
        late = asyncio.ensure_future(queue.add("n", 3))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(late), 0.3)
        assert desk.waiting() == 3
        desk.redis.xtrim(desk.keys.stream, maxlen=0, approximate=False)
        await late
    assert desk.waiting() == 1


async def test_an_add_trims_nothing_whatever_the_limit_is(desk: Desk) -> None:
    """A producer that has not heard how full the queue is adds, and takes nothing away for it."""
    async with desk.queue(max_stream_len=500) as queue:
        await queue.add("n", 1)
        for number in range(1_000):  # of other programs
            desk.put(f"foreign-{number}")
        await queue.add("n", 2)
    assert desk.waiting() == 1_002


async def test_trimming_happens_only_when_asked_for(desk: Desk) -> None:
    async with desk.queue(max_stream_len=100, on_full="trim") as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(1000)])
    assert 100 <= desk.waiting() < 1000


async def test_a_queue_works_again_after_close_and_in_another_loop(desk: Desk) -> None:
    queue = desk.queue()
    await queue.add("n", 1)
    await queue.close()
    assert queue.is_closed
    await queue.add("n", 2)
    await asyncio.to_thread(lambda: asyncio.run(queue.add("n", 3)))
    await queue.add("n", 4)
    await queue.close()
    assert desk.waiting() == 4


async def test_event_loops_in_two_threads_may_share_a_queue(own_desk: Desk) -> None:
    def connections() -> int:
        return int(own_desk.redis.info("clients")["connected_clients"])

    before = connections()
    queue = own_desk.queue()
    turns = asyncio.Queue[int]()
    loop, rounds = asyncio.get_running_loop(), 10

    async def elsewhere() -> None:
        for n in range(rounds):
            await queue.add("elsewhere", n)
            loop.call_soon_threadsafe(turns.put_nowait, n)
        await queue.close()

    other = asyncio.ensure_future(asyncio.to_thread(asyncio.run, elsewhere()))
    most = 0
    for _ in range(rounds):
        await queue.add("here", await turns.get())
        most = max(most, connections())
    await other
    assert most <= before + 4  # two each
    await eventually(lambda: connections() == before + 2)
    await queue.add("here", rounds)
    await queue.close()
    await eventually(lambda: connections() == before)
    assert own_desk.waiting() == 2 * rounds + 1


async def test_a_close_that_is_cut_off_leaves_no_connection(own_desk: Desk) -> None:
    def connections() -> int:
        return int(own_desk.redis.info("clients")["connected_clients"])

    before = connections()
    queue = own_desk.queue()
    await queue.add("n", 1)
    assert connections() == before + 2
    own_desk.server.server.pause()
    try:
        adding = asyncio.ensure_future(queue.add("n", 2))
        await asyncio.sleep(0)  # it is written before anything is waited for
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(queue.close(), 0.05)
        with pytest.raises(UnconfirmedError):  # nobody would hear the answer
            await adding
    finally:
        own_desk.server.server.resume()
    await eventually(lambda: connections() == before)


def redis_ms(desk: Desk) -> int:
    seconds, micros = desk.redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def test_clocks_of_this_machine_and_its_servers_agree(desk: Desk) -> None:
    assert abs(redis_ms(desk) - time.time() * 1000) < 1000
