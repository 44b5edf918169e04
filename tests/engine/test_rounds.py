"""Rounds of a worker's loops that Redis refuses: counted and told with their cause, not in a hurry,
and over once the cause is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from chasquimq import BackoffSpec, Job, RepeatPattern, UnrecoverableError, Worker
from chasquimq.engine import settler
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(30, jitter_ms=0)


async def nothing(job: Job) -> None:
    pass


def told_of(worker: Worker, name: str) -> list[str]:
    words = f"the {name} has failed "
    return [one for one in worker.health().problems if one.startswith(words)]


def ticks(desk: Desk) -> int:
    return int(desk.redis.info("commandstats").get("cmdstat_evalsha", {}).get("failed_calls", 0))


@pytest.mark.parametrize(("name", "key"), [("promoter", "delayed"), ("scheduler", "repeat")])
async def test_a_key_of_another_type_is_told_by_name_and_cause_until_it_is_gone(
    desk: Desk, name: str, key: str
) -> None:
    async with desk.queue() as queue, desk.working(nothing) as worker:
        await eventually(lambda: worker.health().healthy)
        desk.redis.delete(getattr(desk.keys, key))
        desk.redis.set(getattr(desk.keys, key), "in the way")
        await eventually(lambda: told_of(worker, name))
        [told] = told_of(worker, name)
        assert "times in a row" in told and "WRONGTYPE" in told
        assert worker.health().failing[name].times >= 3
        await queue.add("n", 1)  # the others go on
        await desk.settled() if key == "repeat" else await eventually(lambda: not desk.waiting())
        desk.redis.delete(getattr(desk.keys, key))
        await eventually(lambda: worker.health().healthy)
        assert name not in worker.health().failing
        await queue.add("n", 2, delay_ms=1)
        await desk.settled()


LOSSES = [
    ("promoter", "-zrangebyscore"),
    ("promoter", "-zrem"),
    ("scheduler", "-hmget"),
    ("scheduler", "-zadd"),
    ("scheduler", "-hset"),
]


@pytest.mark.parametrize(("name", "lost"), LOSSES)
async def test_a_right_that_is_taken_from_a_leader_makes_no_job_twice(
    own_desk: Desk, name: str, lost: str
) -> None:
    desk, runs, acl = own_desk, list[str](), own_desk.redis.execute_command

    async def handler(job: Job) -> None:
        runs.append(job.id)

    acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
    url = desk.server.url.replace("//", "//app:pw@")
    async with desk.queue() as queue, desk.working(handler, redis_url=url) as worker:
        await eventually(lambda: worker.health().healthy)
        acl("ACL", "SETUSER", "app", lost)
        if name == "scheduler":
            await queue.upsert_repeatable_job("n", 1, repeat=RepeatPattern.every(200), limit=3)
        else:
            await queue.add("n", 1, delay_ms=1, job_id="a")
        await eventually(lambda: told_of(worker, name))
        failed = ticks(desk)
        for n in range(200):  # each wakes the promoter: it is no reason to hurry
            await queue.add("n", n, delay_ms=3_600_000, job_id=f"later{n}")
        await asyncio.sleep(1)
        assert ticks(desk) - failed < 100
        assert runs == []
        acl("ACL", "SETUSER", "app", "+@all")
        await eventually(lambda: worker.health().healthy)
        await eventually(lambda: len(runs) == (3 if name == "scheduler" else 1))
        await asyncio.sleep(0.5)
    assert len(runs) == len(set(runs)) == (3 if name == "scheduler" else 1)


async def test_a_reader_that_may_not_read_says_so(own_desk: Desk) -> None:
    desk, acl = own_desk, own_desk.redis.execute_command
    acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
    url = desk.server.url.replace("//", "//app:pw@")
    working = desk.working(nothing, redis_url=url, read_block_ms=100)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        acl("ACL", "SETUSER", "app", "-xreadgroup")
        await eventually(lambda: "NOPERM" in str(told_of(worker, "reader")))
        await queue.add("n", 1)
        acl("ACL", "SETUSER", "app", "+@all")
        await desk.settled()
        await eventually(lambda: worker.health().healthy)


# -- the right to ack ------------------------------------------------------------------------------


def fails(job: Job) -> Exception | None:
    return ValueError("again")


def dies(job: Job) -> Exception | None:
    return UnrecoverableError("bad")


def succeeds(job: Job) -> Exception | None:
    return None


LOST = [(succeeds, "acks"), (fails, "acks"), (fails, "one ack"), (dies, "one ack")]
LOST += [(fails, "scripts"), (fails, "keys"), (dies, "everything")]


@pytest.mark.parametrize(("how", "lost"), LOST)
async def test_without_the_right_to_settle_no_job_runs_more_often_than_it_may(
    own_desk: Desk,
    how: Callable[[Job], Exception | None],
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settler, "RARELY_S", 0.5)
    desk, runs, acl = own_desk, list[str](), own_desk.redis.execute_command
    taken, given = {
        "acks": (["-xack", "-xdel"], ["+@all"]),
        "one ack": (["-xack"], ["+@all"]),
        "scripts": (["-evalsha"], ["+@all"]),
        "keys": (["resetkeys", "~nothing*"], ["~*"]),
        "everything": (["-@all"], ["+@all"]),
    }[lost]
    if lost == "acks" and desk.server.name == "redis-native":
        taken = [*taken, "-xackdel"]

    async def handler(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(0.05)
        error = how(job)
        if error is not None:
            raise error

    acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
    url = desk.server.url.replace("//", "//app:pw@")
    options = {"redis_url": url, "read_block_ms": 100, "concurrency": 4, "backoff": FAST}
    working = desk.working(handler, max_attempts=3, claim_min_idle_ms=1_000, **options)
    async with desk.queue() as queue, working as worker:
        await eventually(lambda: worker.health().healthy)
        acl("ACL", "SETUSER", "app", *taken)
        ids = [f"j{n}" for n in range(30)]
        await queue.add_bulk([{"name": "n", "data": n, "job_id": n} for n in ids])
        words = ("NOPERM", "ACL failure", "user executing the script")
        await eventually(lambda: any(one in str(worker.health().problems) for one in words))
        await asyncio.sleep(1.5)
        assert len(desk.dead()) <= 30
        assert max(map(runs.count, ids)) <= 3
        acl("ACL", "SETUSER", "app", *given)
        await desk.settled(40)
        await eventually(lambda: worker.health().healthy)
    assert set(runs) == set(ids)
    assert max(map(runs.count, ids)) <= 3
    dead = [row[b"job_id"].decode() for row in desk.dead()]
    assert sorted(dead) == sorted([] if how is succeeds else ids)


@pytest.mark.parametrize("right", ["-xack", "-xdel"])
async def test_what_is_given_back_without_a_right_is_not_copied(own_desk: Desk, right: str) -> None:
    desk, runs, acl = own_desk, list[str](), own_desk.redis.execute_command

    async def handler(job: Job) -> None:
        runs.append(job.id)
        await asyncio.sleep(3600)

    acl("ACL", "SETUSER", "app", "on", ">pw", "+@all", "&*", "~*")
    url = desk.server.url.replace("//", "//app:pw@")
    async with desk.queue() as queue:
        async with desk.working(handler, redis_url=url, drain_ms=0) as worker:
            await eventually(lambda: worker.health().healthy)
            await queue.add_bulk([{"name": "n", "data": n} for n in range(5)])
            await eventually(lambda: len(runs) == 5)
            acl("ACL", "SETUSER", "app", right)
        assert desk.waiting() == len(desk.pending()) == 5
        heir = list[str]()

        async def again(job: Job) -> None:
            heir.append(job.id)

        async with desk.working(again, claim_min_idle_ms=200):
            await desk.settled()
    assert sorted(heir) == sorted(runs)
