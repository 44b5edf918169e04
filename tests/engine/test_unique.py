"""Unique jobs: no process brings in a second one with the same id, and everybody is told."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from chasquimq import ConfigError, Job, Queue, UnconfirmedError, UnrecoverableError
from tests.engine.desk import Desk, eventually

MODES: list[dict[str, Any]] = [
    {"unique_for": timedelta(minutes=5)},
    {"unique": "until_done"},
    {"unique": "until_done", "unique_for": 60_000},
]
each_mode = pytest.mark.parametrize("mode", MODES, ids=["for a while", "until done", "limited"])
UNTIL_DONE = MODES[1]


@each_mode
async def test_the_first_wins_whoever_comes_second_is_told(
    desk: Desk, mode: dict[str, Any]
) -> None:
    async with desk.queue() as ours, desk.queue() as theirs:
        first = await ours.add("send", {"n": 1}, job_id="a", **mode)
        again = await ours.add("send", {"n": 2}, job_id="a", **mode)
        elsewhere = await theirs.add("send", {"n": 3}, job_id="a", **mode)
        other = await theirs.add("send", {"n": 4}, job_id="b", **mode)
    assert [job.duplicate for job in (first, again, elsewhere, other)] == [False, True, True, False]
    assert [job.id for job in (first, again, elsewhere, other)] == ["a", "a", "a", "b"]
    assert [envelope.id for envelope in desk.envelopes()] == ["a", "b"]


@each_mode
async def test_of_many_at_once_one_comes_in(desk: Desk, mode: dict[str, Any]) -> None:
    queues = [desk.queue() for _ in range(4)]
    adds = [queue.add("n", n, job_id="a", **mode) for n, queue in enumerate(queues * 25)]
    jobs = await asyncio.gather(*adds)
    for queue in queues:
        await queue.close()
    assert [job.duplicate for job in jobs].count(False) == 1
    assert desk.waiting() == 1


@each_mode
async def test_a_bulk_says_which_of_its_jobs_were_there(desk: Desk, mode: dict[str, Any]) -> None:
    async with desk.queue() as queue:
        await queue.add("n", 0, job_id="1", **mode)
        jobs = [{"name": "n", "data": n, "job_id": str(n % 3), **mode} for n in range(6)]
        added = await queue.add_bulk([*jobs, {"data": "plain"}])
    expected = [False, True, False, True, True, True, False]
    assert [job.duplicate for job in added] == expected
    assert desk.waiting() == 4


async def test_waiting_is_not_told_of_a_duplicate(desk: Desk) -> None:
    async with desk.queue(waiting_events=True) as queue:
        for _ in range(3):
            await queue.add("n", 1, job_id="a", **UNTIL_DONE)
    assert [event.name for event in desk.events()] == ["waiting"]


async def test_a_period_holds_although_the_job_is_done_and_then_ends(desk: Desk) -> None:
    async with desk.queue() as queue, desk.working(_nothing):
        await queue.add("n", 1, job_id="a", unique_for=timedelta(hours=1))
        await desk.settled()
        again = await queue.add("n", 2, job_id="a", unique_for=timedelta(hours=1))
        assert again.duplicate
        assert 3_500 < desk.redis.ttl(desk.keys.dlid("a")) <= 3_600
        desk.redis.delete(desk.keys.dlid("a"))  # as its end would
        assert not (await queue.add("n", 3, job_id="a", unique_for=1_000)).duplicate
        assert desk.redis.ttl(desk.keys.dlid("a")) == 1


@pytest.mark.parametrize("kept", [False, True], ids=["no results", "results"])
async def test_until_done_ends_with_the_job(desk: Desk, kept: bool) -> None:
    seen: list[Any] = []

    async def handler(job: Job) -> int:
        seen.append(job.data)
        return len(seen)

    async with desk.queue() as queue, desk.working(handler, store_results=kept):
        for n in range(3):
            job = await queue.add("n", n, job_id="a", **UNTIL_DONE)
            assert not job.duplicate
            await desk.settled()
        if kept:
            assert await queue.get_job_result("a") == 3
    assert seen == [0, 1, 2]
    assert desk.redis.get(desk.keys.unique("a")).startswith(b"-")  # what is sent again is known
    assert 0 < desk.redis.ttl(desk.keys.unique("a")) <= 60


async def test_a_job_that_runs_or_waits_for_its_retry_still_holds_its_id(desk: Desk) -> None:
    running, go_on = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    async def handler(job: Job) -> None:
        runs.append(job.attempt)
        if job.attempt == 0:
            running.set()
            await go_on.wait()
            raise RuntimeError("once more")
        if job.attempt == 1:
            raise RuntimeError("and once more")

    options = {"unique": "until_done", "unique_for": timedelta(seconds=100)}
    async with desk.queue() as queue, desk.working(handler):
        await queue.add("n", 1, job_id="a", backoff=400, **options)
        await running.wait()
        assert (await queue.add("n", 2, job_id="a", **options)).duplicate
        desk.redis.expire(desk.keys.unique("a"), 5)
        go_on.set()
        await eventually(lambda: desk.delayed() == 1)
        assert (await queue.add("n", 3, job_id="a", **options)).duplicate
        assert desk.redis.ttl(desk.keys.unique("a")) > 90  # each step gives it time anew
        await desk.settled()
        assert runs == [0, 1, 2]
        assert not (await queue.add("n", 4, job_id="a", **options)).duplicate
        await desk.settled()


@pytest.mark.parametrize("how", ["unrecoverable", "exhausted", "before it ran"])
async def test_a_dead_job_frees_its_id_and_says_that_it_was_unique(desk: Desk, how: str) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("no") if how == "unrecoverable" else RuntimeError("no")

    attempts = 0 if how == "before it ran" else 1
    async with desk.queue() as queue:
        async with desk.working(handler):
            await queue.add("n", 1, job_id="a", attempts=attempts, **UNTIL_DONE)
            await eventually(lambda: len(desk.dead()) == 1)
        [row] = desk.dead()
        assert (row[b"job_id"], row[b"u"]) == (b"a", b"86400")
        assert not (await queue.add("n", 2, job_id="a", **UNTIL_DONE)).duplicate


@pytest.mark.parametrize("ends", ["well", "badly", "for good"])
async def test_who_ends_late_frees_nobody_elses_id(desk: Desk, ends: str) -> None:
    """Its limit passed while it ran, another job has the id now."""
    running, turns = asyncio.Event(), asyncio.Semaphore(0)

    async def handler(job: Job) -> None:
        running.set()
        await turns.acquire()
        if ends == "badly":
            raise RuntimeError("later")
        if ends == "for good":
            raise UnrecoverableError("never")

    async with desk.queue() as queue, desk.working(handler, concurrency=1):
        await queue.add("n", 1, job_id="a", backoff=3_600_000, **UNTIL_DONE)
        await running.wait()
        desk.redis.delete(desk.keys.unique("a"))  # as its limit would
        await asyncio.sleep(0.002)  # or both were created in the same millisecond
        assert not (await queue.add("n", 2, job_id="a", attempts=1, **UNTIL_DONE)).duplicate
        holder = desk.redis.get(desk.keys.unique("a"))
        desk.redis.expire(desk.keys.unique("a"), 1_000)
        turns.release()
        await eventually(lambda: desk.waiting() == 1)
        assert desk.redis.get(desk.keys.unique("a")) == holder
        assert desk.redis.ttl(desk.keys.unique("a")) <= 1_000
        turns.release()
        await eventually(lambda: desk.waiting() == 0)
        assert desk.redis.get(desk.keys.unique("a")) == b"-" + holder


async def test_the_answer_is_the_same_when_the_command_is_sent_twice(own_desk: Desk) -> None:
    """All connections are killed again and again: each id is in once, and of those who added it
    exactly one is told that it was the first."""
    desk = own_desk
    one, other = desk.queue(), desk.queue()
    jobs: list[dict[str, Any]] = [
        {"name": "n", "data": n, "job_id": f"{n}", **MODES[n % 3]} for n in range(1_500)
    ]
    for job in jobs[::4]:
        job["delay_ms"] = 3_600_000
    for job in jobs[::20]:  # with an id of the ordinary kind
        job.pop("unique", None), job.pop("unique_for", None)
    for queue in (one, other):
        await queue.add("warm", 1)
    bulks = [asyncio.ensure_future(queue.add_bulk(jobs)) for queue in (one, other)]
    while not all(bulk.done() for bulk in bulks):
        desk.redis.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.004)
    for queue in (one, other):
        await queue.close()
    ids = [envelope.id for envelope in desk.envelopes()][2:]
    assert len(ids) + desk.delayed() == 1_500
    assert sorted(ids, key=int) == [job["job_id"] for job in jobs if "delay_ms" not in job]
    told = [[job.duplicate for job in bulk.result()] for bulk in bulks]
    assert all(mine is not theirs for mine, theirs in zip(*told, strict=True))


async def test_ids_stay_taken_when_processes_and_the_server_start_anew(own_desk: Desk) -> None:
    """What is promised across restarts holds, given that the server keeps its writes."""
    desk, later = own_desk, {"delay": timedelta(hours=1)}
    kinds: dict[str, dict[str, Any]] = {
        "period": MODES[0],
        "done": UNTIL_DONE,
        "later": later,
        "later for a while": MODES[0] | later,
        "later until done": UNTIL_DONE | later,
    }
    async with desk.queue() as before:
        for job_id, mode in kinds.items():
            assert not (await before.add("n", 1, job_id=job_id, **mode)).duplicate
    desk.server.server.kill()
    desk.server.server.start()
    async with desk.queue() as after:
        again = [(await after.add("n", 2, job_id=one, **mode)) for one, mode in kinds.items()]
        assert [job.duplicate for job in again] == [True] * 5
        assert (desk.waiting(), desk.delayed()) == (2, 3)
        assert await after.cancel_delayed("later until done")
        fresh = await after.add("n", 3, job_id="later until done", **UNTIL_DONE)
        assert not fresh.duplicate


async def test_what_was_sent_too_long_ago_is_not_sent_again(own_desk: Desk) -> None:
    """After its memory the server would take it for a new one."""
    server = own_desk.server.server
    async with own_desk.queue() as queue:
        await queue.add("warm", 1)
        server.pause()
        short = asyncio.ensure_future(queue.add("n", 1, job_id="short", unique_for=1_000))
        long = asyncio.ensure_future(queue.add("n", 1, job_id="long", unique_for=60_000))
        await asyncio.sleep(1.2)
        server.kill()
        server.start()
        assert not (await long).duplicate
        with pytest.raises(UnconfirmedError, match="may be in, or not"):
            await short
    assert "long" in [envelope.id for envelope in own_desk.envelopes()]


async def test_a_replayed_job_takes_its_id_again_or_waits_until_it_is_free(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    fail, seen = True, []

    async def handler(job: Job) -> None:
        if fail:
            raise UnrecoverableError("no")
        seen.append(job.data)

    async with desk.queue() as queue:
        async with desk.working(handler):
            await queue.add("n", 1, job_id="a", **UNTIL_DONE)
            await queue.add("n", "free", job_id="b", unique="until_done", unique_for=50_000)
            await eventually(lambda: len(desk.dead()) == 2)
        await queue.add("n", 2, job_id="a", **UNTIL_DONE)
        assert await queue.replay_dlq() == 1  # only b: the living a has its id
        assert "1 dead jobs stay" in caplog.text
        assert [row[b"job_id"] for row in desk.dead()] == [b"a"]
        assert (await queue.add("n", 3, job_id="b", **UNTIL_DONE)).duplicate
        assert 40 < desk.redis.ttl(desk.keys.unique("b")) <= 50
        fail = False
        async with desk.working(handler):
            await desk.settled()
            assert await queue.replay_dlq() == 1
            await desk.settled()
            assert not (await queue.add("n", 4, job_id="a", **UNTIL_DONE)).duplicate
            assert not (await queue.add("n", 5, job_id="b", **UNTIL_DONE)).duplicate
            await desk.settled()
    assert sorted(map(str, seen)) == ["1", "2", "4", "5", "free"]


# -- delayed -----------------------------------------------------------------------------------


@each_mode
async def test_a_delayed_id_is_taken_too_and_so_for_immediate_adds(
    desk: Desk, mode: dict[str, Any]
) -> None:
    async with desk.queue() as ours, desk.queue() as theirs:
        first = await ours.add("n", 1, job_id="a", delay=timedelta(hours=1), **mode)
        later = await theirs.add("n", 2, job_id="a", delay=timedelta(hours=2), **mode)
        now = await theirs.add("n", 3, job_id="a", **mode)
        assert [first.duplicate, later.duplicate, now.duplicate] == [False, True, True]
        await theirs.add("n", 4, job_id="b", **mode)
        assert (await ours.add("n", 5, job_id="b", delay=1_000, **mode)).duplicate
    assert (desk.delayed(), desk.waiting()) == (1, 1)


async def test_the_period_of_a_delayed_job_begins_when_it_is_due(desk: Desk) -> None:
    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="a", delay=timedelta(seconds=100), unique_for=50_000)
        await queue.add("n", 1, job_id="b", delay=100_000, unique="until_done", unique_for=50_000)
        assert 145 < desk.redis.ttl(desk.keys.dlid("a")) <= 150
        assert 145 < desk.redis.ttl(desk.keys.unique("b")) <= 150
        assert not desk.redis.exists(desk.keys.dlid("b"))


async def test_a_delayed_job_frees_its_id_when_it_is_done(desk: Desk) -> None:
    seen: list[Any] = []

    async def handler(job: Job) -> None:
        seen.append(job.data)

    async with desk.queue() as queue, desk.working(handler):
        for n in range(3):
            job = await queue.add("n", n, job_id="a", delay_ms=5, **UNTIL_DONE)
            assert not job.duplicate
            await eventually(lambda n=n: len(seen) == n + 1)
            await desk.settled()


@each_mode
async def test_a_cancelled_job_frees_its_id(desk: Desk, mode: dict[str, Any]) -> None:
    async with desk.queue() as queue:
        for n in range(2):
            job = await queue.add("n", n, job_id="a", delay=timedelta(hours=1), **mode)
            assert not job.duplicate
            assert await queue.cancel_delayed("a")
        assert not (await queue.add("n", 3, job_id="a", **mode)).duplicate
        assert not await queue.cancel_delayed("a")  # it is not delayed
        assert (await queue.add("n", 4, job_id="a", **mode)).duplicate


async def test_who_is_cancelled_late_frees_nobody_elses_id(desk: Desk) -> None:
    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="a", delay=timedelta(hours=1), **UNTIL_DONE)
        desk.redis.delete(desk.keys.unique("a"))  # as its limit would
        await asyncio.sleep(0.002)
        await queue.add("n", 2, job_id="a", **UNTIL_DONE)
        holder = desk.redis.get(desk.keys.unique("a"))
        ttl = desk.redis.ttl(desk.keys.unique("a"))
        assert await queue.reschedule("a", delay=timedelta(seconds=5))
        assert desk.redis.ttl(desk.keys.unique("a")) >= ttl - 5
        assert await queue.cancel_delayed("a")
        assert desk.redis.get(desk.keys.unique("a")) == holder


async def test_a_rescheduled_job_keeps_its_id_for_as_long_as_it_takes(desk: Desk) -> None:
    options: dict[str, Any] = {"unique": "until_done", "unique_for": 10_000}
    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="a", delay=5_000, **options)
        assert await queue.reschedule("a", delay=100_000)
        assert 105 < desk.redis.ttl(desk.keys.unique("a")) <= 111
        assert (await queue.add("n", 2, job_id="a", **options)).duplicate


async def test_an_ordinary_delayed_id_says_duplicate_too(desk: Desk) -> None:
    async with desk.queue() as ours, desk.queue() as theirs:
        first = await ours.add_unique("n", 1, job_id="a", delay_ms=60_000)
        second = await theirs.add_unique("n", 2, job_id="a", delay_ms=60_000)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert desk.redis.get(desk.keys.dlid("a")) == b"1"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"unique": "until_done"}, "needs a job_id"),
        ({"unique_for": timedelta(hours=1)}, "needs a job_id"),
        ({"unique": "untildone", "job_id": "a"}, "must be one of until_done"),
        ({"unique_for": timedelta(0), "job_id": "a"}, "more than nothing"),
        ({"unique_for": -5, "job_id": "a"}, "more than nothing"),
        ({"unique_for": timedelta(days=4_000), "job_id": "a"}, "at most ten years"),
        ({"unique_for": float("nan"), "job_id": "a"}, "more than nothing"),
        ({"unique_for": "1h", "job_id": "a"}, "timedelta or a number"),
        ({"unique_for": True, "job_id": "a"}, "timedelta or a number"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_it_is_sent(
    options: dict[str, Any], words: str
) -> None:
    queue = Queue("nowhere", redis_url="redis://127.0.0.1:1")
    with pytest.raises(ConfigError, match=words):
        await queue.add("n", 1, **options)
    with pytest.raises(ConfigError, match=words):
        await queue.add_bulk([{"data": 1, **options}])


async def _nothing(job: Job) -> None:
    pass
