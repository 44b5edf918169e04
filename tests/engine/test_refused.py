"""A write that Redis refuses again and again: its job runs once, its neighbours are settled, health
tells of it, and it goes through once its cause is mended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, UnrecoverableError, wire
from chasquimq.engine import settler
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "RARELY_S", 0.5)


class Log:
    """A handler that remembers its runs, and fails as it is told to."""

    def __init__(self, fails: Callable[[Job], Exception | None] = lambda job: None) -> None:
        self.runs: list[str] = []
        self._fails = fails

    async def __call__(self, job: Job) -> Any:
        self.runs.append(job.id)
        error = self._fails(job)
        if error is not None:
            raise error
        return "kept"


def failing(job: Job) -> Exception:
    return ValueError("again")


def unrecoverable(job: Job) -> Exception:
    return UnrecoverableError("bad")


def bad_ones(job: Job) -> Exception | None:
    return ValueError("again") if job.id == "bad" else None


def of_run(record: logging.LogRecord) -> bool:
    """Whether it tells how a run ended, not what became of that."""
    return " failed (attempt " in record.getMessage()


# -- markers ---------------------------------------------------------------------------------------

HUGE = b"9999999999999999999999999"
MARKERS = {
    "a limit beyond all numbers": lambda created: created + b" " + HUGE + b" x",
    "a created beyond all numbers": lambda created: HUGE + b" 100 x",
    "no limit": lambda created: created,
    "no limit in seconds": lambda created: created + b" 0 x",
    "nothing": lambda created: b"",
    "bytes": lambda created: b"\xff\x00 \xff",
    "a list": None,
}


@pytest.mark.parametrize("said", MARKERS)
async def test_a_malformed_marker_costs_no_run_and_no_second_dead_letter(
    desk: Desk, said: str
) -> None:
    log, make = Log(failing), MARKERS[said]
    async with desk.queue() as queue:
        job = await queue.add("n", 1, job_id="U", unique="until_done", attempts=5)
        key, created = desk.keys.unique("U"), b"%d" % job.created_at_ms
        assert desk.redis.get(key).startswith(created + b" ")  # type: ignore[union-attr]
        desk.redis.delete(key)
        if make is None:
            desk.redis.rpush(key, "in the way")
        else:
            desk.redis.set(key, make(created))
        async with desk.working(log, backoff=FAST):
            await eventually(lambda: desk.dead())
            await desk.settled()
    assert log.runs == ["U"] * 5
    assert [fields[b"job_id"] for fields in desk.dead()] == [b"U"]


# -- keys of another type --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fails", "key", "then"),
    [(failing, "delayed", Desk.delayed), (unrecoverable, "dlq", lambda desk: len(desk.dead()))],
    ids=["retry", "bury"],
)
async def test_a_move_that_is_refused_is_set_aside_and_its_job_runs_once(
    desk: Desk,
    caplog: pytest.LogCaptureFixture,
    fails: Callable[[Job], Exception],
    key: str,
    then: Callable[[Desk], int],
) -> None:
    log, place = Log(fails), getattr(desk.keys, key)
    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    options = {"backoff": slow, "claim_min_idle_ms": 300, "events_enabled": False}
    promoting = key != "delayed"  # its own errors are told elsewhere
    working = desk.working(log, delayed_enabled=promoting, **options)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().state == "running")
        desk.redis.set(place, "in the way")
        await queue.add("n", 1, job_id="bad")
        await eventually(lambda: worker.health().refused_moves == 1)
        health = worker.health()
        assert not health.healthy
        assert "refuses to settle 1 jobs" in str(health.problems)
        assert (health.refusing, health.held) == (None, 1)
        [told] = [one for one in caplog.records if one.levelno == logging.ERROR and not of_run(one)]
        for word in ("'bad'", "WRONGTYPE", desk.pending()[0]["message_id"].decode()):
            assert word in told.getMessage()
        # Held by this worker for several leases, and tried again: it is not run again.
        tried = len(caplog.records)
        [entry] = desk.pending()
        await asyncio.sleep(1)
        [still] = desk.pending()
        assert (still["consumer"], still["times_delivered"]) == (entry["consumer"], 1)
        assert [one for one in caplog.records[tried:] if one.levelno == logging.ERROR] == []
        desk.redis.delete(place)
        await eventually(lambda: then(desk) == 1)
        await eventually(lambda: worker.health().held == 0)
        assert worker.health().refused_moves == 0 and not worker.health().problems
    assert log.runs == ["bad"]


async def test_others_are_run_and_settled_beside_a_move_that_is_refused(desk: Desk) -> None:
    log = Log(bad_ones)
    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    working = desk.working(log, backoff=slow, delayed_enabled=False, concurrency=3)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().state == "running")
        desk.redis.set(desk.keys.delayed, "in the way")
        await queue.add("n", 0, job_id="bad")
        await eventually(lambda: worker.health().refused_moves == 1)
        await queue.add_bulk([{"name": "n", "data": n} for n in range(200)])
        await eventually(lambda: len(log.runs) == 201 and worker.health().held == 1)
        assert len(desk.pending()) == desk.waiting() == 1
        desk.redis.delete(desk.keys.delayed)
        await eventually(lambda: desk.delayed() == 1)
    assert len(set(log.runs)) == len(log.runs)


async def test_many_moves_that_are_refused_in_a_row_stop_the_reading(desk: Desk) -> None:
    log = Log(failing)
    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    working = desk.working(log, backoff=slow, delayed_enabled=False, concurrency=2)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().state == "running")
        desk.redis.set(desk.keys.delayed, "in the way")
        await queue.add_bulk([{"name": "n", "data": n} for n in range(2_000)])
        await eventually(lambda: worker.health().refusing is not None)
        assert "reads nothing until that is mended" in str(worker.health().problems)
        await eventually(lambda: worker.health().refused_moves == len(log.runs))
        ran = len(log.runs)
        await asyncio.sleep(1)
        assert len(log.runs) == ran < 2_000
        desk.redis.delete(desk.keys.delayed)
        await eventually(lambda: desk.delayed() == 2_000)
    assert len(set(log.runs)) == len(log.runs) == 2_000


async def test_reading_goes_on_after_the_stream_of_refused_moves_is_gone(own_desk: Desk) -> None:
    desk, log = own_desk, Log(lambda job: failing(job) if job.name == "bad" else None)
    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    working = desk.working(log, backoff=slow, delayed_enabled=False, read_block_ms=200)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().state == "running")
        desk.redis.set(desk.keys.delayed, "in the way")
        await queue.add_bulk([{"name": "bad", "data": n} for n in range(20)])
        await eventually(lambda: worker.health().refusing is not None)
        desk.redis.delete(desk.keys.stream)
        await eventually(lambda: worker.health().held == 0)
        await queue.add("good", 1, job_id="good")
        await eventually(lambda: "good" in log.runs)
        await eventually(lambda: not worker.health().problems)


# -- results, and acks -----------------------------------------------------------------------------


async def test_one_result_that_is_refused_keeps_no_neighbour_from_being_acked(
    own_desk: Desk,
) -> None:
    desk, log, acl = own_desk, Log(), own_desk.redis.execute_command
    gate = asyncio.Event()
    tag = desk.keys.tag.decode()

    async def handler(job: Job) -> Any:
        await gate.wait()
        return await log(job)

    async with desk.queue() as queue:
        acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
        url = desk.server.url.replace("//", "//app:pw@")
        working = desk.working(handler, redis_url=url, store_results=True, concurrency=50)
        async with working as worker:
            await queue.add_bulk([{"name": "n", "data": n, "job_id": f"g{n}"} for n in range(40)])
            await queue.add("n", 1, job_id="bad")
            await eventually(lambda: worker.health().running == 41)
            rest = [f"~{tag}{name}" for name in ("[^r]*", "repeat*", "result:g*")]
            acl("ACL", "SETUSER", "app", "resetkeys", *rest)
            gate.set()
            await eventually(lambda: worker.health().refused_moves == 1)
            await eventually(lambda: len(desk.pending()) == 1)
            assert worker.health().refusing is None
            assert len(desk.redis.keys(desk.keys.result("g") + b"*")) == 40
            acl("ACL", "SETUSER", "app", "~*")
            await desk.settled()
            assert desk.redis.exists(desk.keys.result("bad"))
            await eventually(lambda: worker.health().refused_moves == 0)
    assert sorted(log.runs) == sorted({*log.runs}) and len(log.runs) == 41


@pytest.mark.parametrize("lost", ["-xack", "-evalsha"])
async def test_a_right_that_is_taken_away_stops_the_reading_until_it_is_given_back(
    own_desk: Desk, lost: str
) -> None:
    desk, log, acl = own_desk, Log(), own_desk.redis.execute_command
    if lost == "-xack" and desk.server.name == "redis-native":
        lost = "-xackdel"
    async with desk.queue() as queue:
        acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
        url = desk.server.url.replace("//", "//app:pw@")
        options = {"redis_url": url, "read_block_ms": 100, "concurrency": 2}
        async with desk.working(log, **options) as worker:
            await queue.add("n", 0)
            await desk.settled()
            acl("ACL", "SETUSER", "app", lost)
            if lost == "-evalsha" and desk.server.name == "redis-native":
                acl("ACL", "SETUSER", "app", "-xackdel")
            await queue.add("n", 1, job_id="first")
            await eventually(lambda: worker.health().refusing is not None)
            await queue.add_bulk([{"name": "n", "data": n} for n in range(300)])
            await eventually(lambda: worker.health().refused_moves > 0)
            assert "it reads nothing until that is mended" in str(worker.health().problems)
            assert "NOPERM" in worker.health().refusing or "ACL" in worker.health().refusing
            await asyncio.sleep(0.5)
            assert len(log.runs) < 100
            acl("ACL", "SETUSER", "app", "+@all")
            await desk.settled()
            await eventually(lambda: not worker.health().problems)
    assert len(set(log.runs)) == len(log.runs) == 302


async def test_a_burial_without_the_right_to_ack_leaves_no_copy_with_every_try(
    own_desk: Desk,
) -> None:
    """Nothing is written, and it is tried again only when the right is back."""
    desk, log, acl = own_desk, Log(unrecoverable), own_desk.redis.execute_command
    async with desk.queue() as queue:
        acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
        url = desk.server.url.replace("//", "//app:pw@")
        async with desk.working(log, redis_url=url) as worker:
            await eventually(lambda: worker.health().state == "running")
            acl("ACL", "SETUSER", "app", "-xack")
            await queue.add("n", 1, job_id="bad")
            await eventually(lambda: worker.health().refused_moves == 1)
            await asyncio.sleep(1.5)  # several times that it could have been tried again
            assert len(desk.dead()) == 0
            acl("ACL", "SETUSER", "app", "+xack")
            await desk.settled()
            assert len(desk.dead()) == 1
    assert log.runs == ["bad"]


# -- the end ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["close", "burst"])
async def test_what_is_set_aside_is_charged_at_the_end_and_not_given_back_as_fresh(
    desk: Desk, how: str
) -> None:
    log = Log(failing)
    slow = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    burst = how == "burst"
    async with desk.queue() as queue:
        await queue.add("n", 1, job_id="bad")
        desk.redis.set(desk.keys.delayed, "in the way")
        worker = desk.worker(log, backoff=slow, delayed_enabled=False, burst=burst)
        ending = asyncio.ensure_future(worker.run())
        await eventually(lambda: ending.done() or worker.health().refused_moves == 1)
        if not burst:
            await worker.close()
        async with asyncio.timeout(10):
            await ending
        [entry] = desk.pending()
        assert (entry["times_delivered"], desk.waiting()) == (1, 1)
        desk.redis.delete(desk.keys.delayed)
        heir = Log(failing)
        async with desk.working(heir, backoff=slow, claim_min_idle_ms=200):
            await eventually(lambda: desk.delayed() == 1)
        [member] = desk.redis.zrange(desk.keys.delayed, 0, -1)
        envelope = wire.unpack_envelope(wire.split_member(member)[1])
    assert (log.runs, heir.runs) == (["bad"], ["bad"])
    assert envelope.attempt == 2  # both runs count


# -- promoter and scheduler ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "loop"),
    [
        ("promoter_lock", "promoter"),
        ("delayed", "promoter"),
        ("scheduler_lock", "scheduler"),
        ("repeat", "scheduler"),
    ],
)
async def test_health_tells_that_nothing_is_promoted_or_fired(
    desk: Desk, key: str, loop: str
) -> None:
    log, place = Log(), getattr(desk.keys, key)
    async with desk.queue() as queue, desk.working(log, scheduler_tick_ms=50) as worker:
        await eventually(lambda: worker.health().leads and worker.health().schedules)
        await eventually(lambda: worker.health().healthy)
        desk.redis.delete(place)
        desk.redis.rpush(place, "in the way")
        await eventually(lambda: not worker.health().healthy)
        health = worker.health()
        assert "WRONGTYPE" in health.failing[loop].why
        assert f"the {loop} has failed" in str(health.problems)
        desk.redis.delete(place)
        await eventually(lambda: worker.health().healthy)
        assert loop not in worker.health().failing
        await queue.add("n", 1, job_id="later", delay_ms=1)
        await eventually(lambda: log.runs == ["later"])
