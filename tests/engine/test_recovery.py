"""How what a dead worker left is taken up: side by side, the killer by itself, and at no charge
what had only been read ahead."""

from __future__ import annotations

import asyncio

import pytest

from chasquimq import Job, Worker, wire
from chasquimq.engine.recovery import Recovery
from chasquimq.policy import recovery as policy
from tests.engine.desk import Desk, eventually

LEASE = 300


class Hall:
    """A handler whose runs last until they are let go."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, int]] = []
        self.inside: set[str] = set()
        self.most = 0
        self.open: set[str] = set()
        self._moved = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.runs.append((job.id, job.attempt))
        self.inside.add(job.id)
        self.most = max(self.most, len(self.inside))
        while not {job.id, "*"} & self.open:
            self._moved.clear()
            await self._moved.wait()
        self.inside.remove(job.id)

    def let_go(self, *job_ids: str) -> None:
        self.open.update(job_ids)
        self._moved.set()


def left_by(desk: Desk, count: int, consumer: str = "dead", deliveries: int = 1) -> list[bytes]:
    for number in range(count):
        desk.put(f"left-{number:02}")
    return desk.abandon(count, consumer, deliveries)


def recovery_of(worker: Worker) -> Recovery:
    assert worker._consumer is not None
    return worker._consumer.recovery


async def test_suspects_begin_one_by_one_and_twice_as_many_run_while_nothing_dies(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may not start yet waits under the dead consumer's name, uncharged. Under a name of our
    own no lease has to run out, and no run is proved by its length within the test."""
    monkeypatch.setattr(policy, "SLOW_S", 0.0)
    hall = Hall()
    left_by(desk, 10, "mine")
    async with desk.working(hall, consumer_id="mine", claim_min_idle_ms=60_000) as worker:
        for size in (1, 2, 4, 3):
            await eventually(lambda size=size: len(hall.inside) == size)
            await asyncio.sleep(0.1)  # nobody else comes
            assert len(hall.inside) == size
            charged = [row for row in desk.pending() if row["times_delivered"] == 2]
            assert len(charged) == size
            hall.let_go(*hall.inside)
            await eventually(lambda: not hall.inside & hall.open)
        await desk.settled()
        assert worker.health().suspects == 0
    assert sorted(hall.runs) == [(f"left-{number:02}", 1) for number in range(10)]


async def test_a_long_suspect_holds_up_no_other(desk: Desk) -> None:
    """It was the first, and lasts: the others begin once it has outlived its crashed run."""
    hall = Hall()
    hall.let_go(*[f"left-{number:02}" for number in range(1, 20)])
    left_by(desk, 20)
    async with desk.working(hall, claim_min_idle_ms=LEASE, concurrency=50):
        await eventually(lambda: len(hall.runs) == 20)
        await eventually(lambda: hall.inside == {"left-00"} and desk.waiting() == 1)
        hall.let_go("*")
        await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", 1) for number in range(20)]


async def test_what_has_seen_two_workers_die_runs_alone(desk: Desk) -> None:
    hall = Hall()
    left_by(desk, 3, deliveries=2)
    desk.put("once")
    desk.abandon(1, "other")
    async with desk.working(hall, claim_min_idle_ms=LEASE, concurrency=50) as worker:
        await eventually(lambda: hall.inside == {"once"})
        for number in range(3):
            if number == 0:
                await asyncio.sleep(LEASE / 1000)  # it has outlived its crashed run; and yet
                assert hall.inside == {"once"}
            hall.let_go(*hall.inside)
            await eventually(lambda number=number: hall.inside == {f"left-{number:02}"})
            await asyncio.sleep(LEASE / 1000)
            assert hall.inside == {f"left-{number:02}"}
        hall.let_go("*")
        await desk.settled()
        assert worker.health().suspects == 0
    assert hall.runs[1:] == [(f"left-{number:02}", 2) for number in range(3)]


async def test_a_job_that_hangs_does_not_keep_those_that_run_alone_for_ever(desk: Desk) -> None:
    hall = Hall()
    hall.let_go("left-01", "left-02")
    left_by(desk, 3, deliveries=2)
    async with desk.working(hall, claim_min_idle_ms=LEASE) as worker:
        await eventually(lambda: hall.inside == {"left-00"})
        assert worker.health().suspects == 2
        await eventually(lambda: len(hall.runs) == 3 and worker.health().suspects == 0)
        assert hall.inside == {"left-00"}
        hall.let_go("*")
        await desk.settled()


async def test_what_has_hardly_been_started_waits_for_what_has(desk: Desk) -> None:
    """It had been delivered last, but has been started only if acks were not written."""
    hall = Hall()
    ids = left_by(desk, 4, "mine")
    desk.redis.hset(desk.keys.started.decode(), "mine", wire.pack_started(2, 2, []).decode())
    stream, idle_ms = desk.keys.stream, 3_600_000
    desk.redis.xclaim(stream, "default", "mine", 0, ids[:2], idle=idle_ms, justid=True)
    async with desk.working(hall, consumer_id="mine", claim_min_idle_ms=60_000):
        for number in range(3):
            await eventually(lambda number=number: hall.inside == {f"left-{number:02}"})
            hall.let_go(*hall.inside)
        await eventually(lambda: "left-03" in hall.inside)
        hall.let_go("*")
        await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", 1) for number in range(4)]


async def test_a_last_run_is_not_risked_beside_another_suspect(desk: Desk) -> None:
    hall = Hall()
    left_by(desk, 2)
    async with desk.working(hall, claim_min_idle_ms=LEASE, max_attempts=2):
        await eventually(lambda: hall.inside == {"left-00"})
        await asyncio.sleep(LEASE * 2 / 1000)
        assert hall.inside == {"left-00"}
        hall.let_go("*")
        await desk.settled()
    assert (hall.most, hall.runs) == (1, [("left-00", 1), ("left-01", 1)])


async def test_what_a_dead_worker_had_only_read_ahead_is_run_and_charged_to_nobody(
    desk: Desk,
) -> None:
    """It told that at most the first two had been started, and that of the others one ran."""
    hall = Hall()
    hall.let_go("*")
    ids = left_by(desk, 12)
    started = wire.pack_started(1, 1, [(ids[7], 50)])
    desk.redis.hset(desk.keys.started.decode(), "dead", started.decode())
    async with desk.working(hall, claim_min_idle_ms=LEASE):
        await desk.settled()
    charged = {0, 1, 7}
    assert sorted(hall.runs) == [
        (f"left-{number:02}", int(number in charged)) for number in range(12)
    ]


async def test_without_a_record_all_that_was_held_may_have_been_started(desk: Desk) -> None:
    hall = Hall()
    hall.let_go("*")
    left_by(desk, 5)
    desk.redis.hset(desk.keys.started.decode(), "dead", "no record of ours")
    async with desk.working(hall, claim_min_idle_ms=LEASE):
        await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", 1) for number in range(5)]


async def test_an_earlier_run_under_our_name_had_read_ahead_too(desk: Desk) -> None:
    hall = Hall()
    hall.let_go("*")
    left_by(desk, 6, "mine")
    desk.redis.hset(desk.keys.started.decode(), "mine", wire.pack_started(1, 0, []).decode())
    async with desk.working(hall, consumer_id="mine", claim_min_idle_ms=60_000):
        await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", int(number == 0)) for number in range(6)]


async def test_what_a_living_worker_has_given_back_leaves_its_record_alone(desk: Desk) -> None:
    """It would be taken for dead, and what it starts from now on for read ahead."""
    hall = Hall()
    hall.let_go("*")
    [entry_id] = left_by(desk, 1, "living")
    record = wire.pack_started(2, 2, [])
    desk.redis.hset(desk.keys.started.decode(), "living", record.decode())
    stream = desk.keys.stream
    desk.redis.xclaim(stream, "default", "living", 0, [entry_id], idle=2**31 - 1, justid=True)
    async with desk.working(hall, claim_min_idle_ms=LEASE):
        await desk.settled()
        assert desk.redis.hget(desk.keys.started, "living") == record
    assert hall.runs == [("left-00", 1)]


async def test_what_an_earlier_run_left_hides_nothing_that_this_one_starts(desk: Desk) -> None:
    """They lie in front of it: both count, or its own jobs would pass for read ahead."""
    hall = Hall()
    left_by(desk, 5, "mine")
    options = {"concurrency": 3, "ack_batch": 1, "claim_min_idle_ms": 600}
    async with desk.working(hall, consumer_id="mine", **options) as worker:
        await eventually(lambda: len(hall.inside) == 1)
        desk.put("other")
        await eventually(lambda: "other" in hall.inside)

        def told() -> wire.Started | None:
            return wire.unpack_started(desk.redis.hget(desk.keys.started, "mine") or b"")

        def agrees() -> bool:
            found, left = told(), worker.health().suspects
            return found is not None and found.slots == 3 + left

        await eventually(lambda: worker.health().suspects and agrees())
        hall.let_go("*")
        await desk.settled()
        await eventually(lambda: (found := told()) is not None and found.slots == 3)


async def test_a_worker_writes_down_what_it_has_started(desk: Desk) -> None:
    hall = Hall()
    options = {"consumer_id": "me", "claim_min_idle_ms": LEASE, "concurrency": 3, "ack_batch": 7}
    async with desk.queue() as queue, desk.working(hall, **options):
        await queue.add_bulk([{"name": "", "data": number} for number in range(2)])
        await eventually(lambda: len(hall.inside) == 2)
        ids = {row["message_id"] for row in desk.pending()}

        def told() -> wire.Started | None:
            return wire.unpack_started(desk.redis.hget(desk.keys.started, "me") or b"")

        await eventually(lambda: (found := told()) and found.ran_ms.keys() == ids)
        found = told()
        assert found is not None and (found.slots, found.acks, found.upto) == (3, 7, None)
        hall.let_go("*")
        await desk.settled()
        await eventually(lambda: (found := told()) and not found.ran_ms)
    assert not desk.redis.exists(desk.keys.started)


@pytest.mark.parametrize("ghosts", [2_100, 10_500])
async def test_thousands_of_entries_without_a_body_hide_no_job(desk: Desk, ghosts: int) -> None:
    hall = Hall()
    hall.let_go("*")
    for first in range(0, ghosts, 500):
        size = min(500, ghosts - first)
        for _ in range(size):
            desk.put_raw(b"x")
        desk.redis.xdel(desk.keys.stream, *desk.abandon(size, "dead"))
    desk.put("hidden")
    desk.abandon(1, "dead")
    async with desk.working(hall, claim_min_idle_ms=LEASE):
        await eventually(lambda: hall.runs == [("hidden", 1)])
        await eventually(lambda: desk.waiting() == 0)


async def test_what_a_paused_worker_may_not_claim_it_claims_later(desk: Desk) -> None:
    hall = Hall()
    hall.let_go("*")
    left_by(desk, 3, "mine")
    async with desk.queue() as queue:
        await queue.pause()
        async with desk.working(hall, consumer_id="mine", claim_min_idle_ms=60_000) as worker:
            await eventually(lambda: worker.health().paused)
            await asyncio.sleep(0.1)
            assert hall.runs == []
            await queue.resume()
            await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", 1) for number in range(3)]


async def test_health_tells_of_suspects_that_wait_for_too_long(desk: Desk) -> None:
    hall = Hall()
    left_by(desk, 3, deliveries=2)
    async with desk.working(hall, claim_min_idle_ms=LEASE) as worker:
        await eventually(lambda: hall.inside == {"left-00"})
        await eventually(lambda: not worker.health().healthy)
        health = worker.health()
        assert health.suspects == 2 and health.suspect_wait_s > 2 * LEASE / 1000
        [problem] = health.problems
        assert problem.startswith("2 jobs of workers that died wait to be taken up")
        hall.let_go("*")
        await desk.settled()
        await eventually(lambda: worker.health().healthy)


async def test_suspects_that_a_pause_keeps_back_are_no_problem(desk: Desk) -> None:
    hall = Hall()
    left_by(desk, 3, deliveries=2)
    async with (
        desk.queue() as queue,
        desk.working(hall, claim_min_idle_ms=LEASE) as worker,
    ):
        await eventually(lambda: hall.inside == {"left-00"})
        await eventually(lambda: not worker.health().healthy)
        await queue.pause()
        await eventually(lambda: worker.health().paused)
        await eventually(lambda: worker.health().healthy)
        assert (worker.health().suspects, worker.health().suspect_wait_s) == (2, 0.0)
        await queue.resume()
        hall.let_go("*")
        await desk.settled()


async def test_what_cannot_be_started_soon_is_left_to_other_workers(desk: Desk) -> None:
    """Its slot is taken for long: what it had read ahead does not wait for a look at suspects."""
    busy, idle = Hall(), Hall()
    idle.let_go("*")
    desk.put("long")
    options = {"concurrency": 1, "claim_min_idle_ms": 3_600_000}
    async with desk.working(busy, **options) as worker:
        await eventually(lambda: busy.inside)
        consumer = worker._consumer
        assert consumer is not None
        consumer.recovery._every_s = 3_600.0
        entry_id = desk.put("ahead")  # read ahead, as if its handlers had been fast before
        desk.redis.xreadgroup("default", consumer.reader._jobs.consumer, {desk.keys.stream: ">"})
        [fields] = [row[1] for row in desk.redis.xrange(desk.keys.stream, entry_id, entry_id)]
        consumer.holdings.take([[entry_id, [part for pair in fields.items() for part in pair]]])
        async with desk.working(idle, **options):
            await eventually(lambda: idle.runs == [("ahead", 0)])
        busy.let_go("*")
        await desk.settled()
    assert [run[0] for run in busy.runs] == ["long"]


async def test_jobs_of_a_dead_worker_run_also_while_there_is_no_memory(own_desk: Desk) -> None:
    """What was started is taken up; what was read ahead waits for memory to be put back."""
    desk, hall = own_desk, Hall()
    hall.let_go("*")
    left_by(desk, 4)
    page = desk.redis.xpending_range(desk.keys.stream, "default", "-", "+", 10)
    first = page[0]["message_id"].decode()
    desk.redis.hset(desk.keys.started.decode(), "dead", f"upto {first} {first}")
    async with desk.working(hall, claim_min_idle_ms=LEASE, events_enabled=False):
        desk.redis.config_set("maxmemory", "1")
        await eventually(lambda: hall.runs == [("left-00", 1)])
        await asyncio.sleep(LEASE / 1000)
        assert len(hall.runs) == 1 and desk.waiting() == 3
        desk.redis.config_set("maxmemory", "0")
        await desk.settled()
    assert sorted(hall.runs) == [(f"left-{number:02}", int(number == 0)) for number in range(4)]
