"""Durable adds: confirmed by the disk or by replicas, or unconfirmed and safe to repeat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq import ConfigError, Job, Queue, UnconfirmedError
from chasquimq.config import Durability
from tests.engine.desk import eventually
from tests.engine.shelter import DURABLE, KINDS, LATER, LEVELS, SOON, Shelter, unconfirmed

# -- confirmed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", DURABLE)
async def test_a_confirmed_add_is_an_ordinary_job(shelter: Shelter, level: Durability) -> None:
    desk = shelter.desk
    async with desk.queue() as queue:
        for waits, options in enumerate(KINDS, 1):
            job = await queue.add("n", {"n": 1}, durability=level, **options)
            assert not job.duplicate
            assert shelter.waits() == waits
    assert (desk.waiting(), desk.delayed()) == (3, 1)
    await eventually(lambda: not desk.redis.exists(desk.keys.durable))  # nothing stays behind


@pytest.mark.parametrize("level", DURABLE)
async def test_adds_that_come_together_share_a_wait(shelter: Shelter, level: Durability) -> None:
    async with shelter.desk.queue(durability=level) as queue:
        await queue.add("first", 0)
        before = shelter.waits()
        jobs = await asyncio.gather(*(queue.add("n", n) for n in range(1_000)))
        # The first finds the line idle and goes at once; what comes meanwhile goes together.
        assert shelter.waits() - before == 2
        await queue.add_bulk([{"name": "n", "data": n} for n in range(1_000)])
        assert shelter.waits() - before == 3
    assert len({job.id for job in jobs}) == 1_000
    assert shelter.desk.waiting() == 2_001


@pytest.mark.parametrize("level", DURABLE)
async def test_adds_gather_while_an_earlier_one_waits(shelter: Shelter, level: Durability) -> None:
    async with shelter.desk.queue(durability=level, durability_timeout_ms=60_000) as queue:
        await queue.add("first", 0)
        before = shelter.waits()
        shelter.stall(level)
        adding = []
        for n in range(20):
            adding.append(asyncio.ensure_future(queue.add("n", n)))
            await asyncio.sleep(0.002)  # other turns of the loop, other writes
        shelter.mend(level)
        await asyncio.gather(*adding)
        assert shelter.waits() - before == 2


async def test_a_write_takes_no_more_than_the_server_remembers(shelter: Shelter) -> None:
    async with shelter.desk.queue(durability="replicated") as queue:
        await queue.add_bulk([{"name": "n", "data": n} for n in range(12_000)])
        native = shelter.desk.server.name == "redis-native"
        assert shelter.waits() == (5 if native else 3)  # 2,500, or 5,000 at a time
    assert shelter.desk.waiting() == 12_000


@pytest.mark.parametrize("usual", [None, *LEVELS])
async def test_a_call_may_ask_for_another_durability(
    shelter: Shelter, usual: Durability | None
) -> None:
    async with shelter.desk.queue(durability=usual) as queue:
        for level in (None, *LEVELS):
            before = shelter.waits()
            await queue.add("n", 1, durability=level)
            await queue.add_unique("n", 1, job_id=f"{level}", durability=level)
            await queue.add_bulk([{"name": "n", "data": n} for n in range(3)], durability=level)
            waits = 0 if (level or usual or "memory") == "memory" else 3
            assert shelter.waits() - before == waits, level
    assert shelter.desk.waiting() == 20


@pytest.mark.parametrize("usual", DURABLE)
async def test_other_adds_do_not_wait_for_a_durable_one(
    shelter: Shelter, usual: Durability
) -> None:
    other: Durability = "local" if usual == "replicated" else "replicated"
    async with shelter.desk.queue(durability=usual, durability_timeout_ms=60_000) as queue:
        for level in LEVELS:
            await queue.add("warm", 1, durability=level)
        shelter.stall(usual)
        durable = asyncio.ensure_future(queue.add("n", 1))
        await eventually(lambda: shelter.desk.waiting() == 4)
        for level in ("memory", other):
            await queue.add("n", 2, durability=level)
            await queue.add_bulk([{"data": 3}], durability=level)
        assert not durable.done()
        shelter.mend(usual)
        if usual == "local":
            await queue.add("n", 4, durability="memory")  # the next write brings the disk along
        assert isinstance(await durable, Job)


# -- not confirmed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", DURABLE)
async def test_what_was_not_confirmed_can_be_added_again(
    shelter: Shelter, level: Durability
) -> None:
    """With its id, at any durability, and comes in once."""
    desk = shelter.desk
    asked = [dict(kind) for kind in KINDS for _ in LEVELS]
    for n, own in enumerate(kind for kind in asked if "job_id" in kind):
        own["job_id"] = f"mine-{n}"
    async with desk.queue(**SOON) as queue:
        for each in DURABLE:
            await queue.add("warm", 1, durability=each)
        shelter.stall(level)
        errors = await asyncio.gather(
            *(unconfirmed(queue, durability=level, **options) for options in asked)
        )
        assert shelter.count() == 2 + len(asked)  # they are in
        shelter.mend(level)
        for error, options, again in zip(errors, asked, LEVELS * len(KINDS), strict=True):
            assert (error.accepted, error.outcomes) == (True, [])
            assert error.job_id == options.get("job_id", error.job_id)
            assert f"job_id={error.job_id!r} is safe" in str(error)
            assert "in the server's memory" in str(error) and "1000 ms" in str(error)
            options["job_id"] = error.job_id
            job = await queue.add("n", {"n": 1}, durability=again, **options)
            assert job.id == error.job_id
    assert shelter.count() == 2 + len(asked)
    assert desk.delayed() == len(LEVELS)
    now = {envelope.id for envelope in desk.envelopes()[2:]}
    assert now == {
        error.job_id for error, kind in zip(errors, asked, strict=True) if "delay_ms" not in kind
    }


@pytest.mark.parametrize("level", DURABLE)
async def test_a_duplicate_waits_for_the_job_that_is_in(
    shelter: Shelter, level: Durability
) -> None:
    """Recognised, it writes nothing; what it stands for was written on another connection."""
    kinds: list[dict[str, Any]] = [{}, LATER, {"unique_for": 60_000}, {"unique": "until_done"}]
    async with shelter.desk.queue(**SOON) as queue:
        await queue.add("warm", 1, durability=level)
        shelter.stall(level)
        for n, kind in enumerate(kinds):
            await queue.add("n", 1, job_id=f"{n}", **kind)
        errors = await asyncio.gather(
            *(
                unconfirmed(queue, job_id=f"{n}", durability=level, **kind)
                for n, kind in enumerate(kinds)
            )
        )
        assert [(e.job_id, e.accepted) for e in errors] == [(f"{n}", True) for n in range(4)]
        shelter.mend(level)
        for n, kind in enumerate(kinds):
            job = await queue.add("n", 1, job_id=f"{n}", durability=level, **kind)
            assert job.duplicate
    assert shelter.count() == 1 + len(kinds)


@pytest.mark.parametrize("level", DURABLE)
async def test_a_bulk_without_options_can_be_added_again_too(
    shelter: Shelter, level: Durability
) -> None:
    jobs: list[dict[str, Any]] = [{"name": "n", "data": n} for n in range(60)]
    async with shelter.desk.queue(**SOON, durability=level) as queue:
        await queue.add("warm", 1)
        shelter.stall(level)
        with pytest.raises(UnconfirmedError) as caught:
            await queue.add_bulk(jobs)
        shelter.mend(level)
        ids = [error.job_id for error in caught.value.outcomes]
        again = [{**job, "job_id": job_id} for job, job_id in zip(jobs, ids, strict=True)]
        await queue.add_bulk(again)
    assert shelter.count() == 61


@pytest.mark.parametrize("level", DURABLE)
async def test_in_a_bulk_each_job_has_an_error_of_its_own(
    shelter: Shelter, level: Durability
) -> None:
    jobs: list[dict[str, Any]] = [{"data": n} for n in range(60)]
    jobs[7] = {"data": 7, "job_id": "seven"}
    jobs[9] = {"data": 9, "delay_ms": 3_600_000}
    async with shelter.desk.queue(**SOON, durability=level) as queue:
        await queue.add("warm", 1)
        shelter.stall(level)
        with pytest.raises(UnconfirmedError, match="60 of 60 jobs were not confirmed") as caught:
            await queue.add_bulk(jobs)
        errors = caught.value.outcomes
        assert caught.value.job_id is None
        assert all(isinstance(error, UnconfirmedError) and error.accepted for error in errors)
        assert errors[7].job_id == "seven"
        shelter.mend(level)
        again = [{**job, "job_id": error.job_id} for job, error in zip(jobs, errors, strict=True)]
        added = await queue.add_bulk(again)
        assert [job.id for job in added] == [error.job_id for error in errors]
    assert shelter.count() == 61
    assert shelter.desk.delayed() == 1


async def test_fewer_replicas_than_asked_for_are_counted(shelter: Shelter) -> None:
    async with shelter.desk.queue(durability="replicated", replicas=2, **SOON) as queue:
        error = await unconfirmed(queue)
    assert str(error).startswith(
        "CMQ-031: 1 of 2 replicas confirmed within 1000 ms; the job is in "
    )


async def test_a_server_that_is_demoted_leaves_it_open(shelter: Shelter) -> None:
    """What it alone had, it throws away when it follows its new master."""
    desk = shelter.desk
    async with desk.queue(durability="replicated", durability_timeout_ms=60_000) as queue:
        await queue.add("warm", 1)
        shelter.replica.pause()
        adding = asyncio.ensure_future(queue.add("n", 1))
        await eventually(lambda: desk.waiting() == 2)
        desk.redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(UnconfirmedError, match="may be in, or not") as caught:
            await adding
        assert caught.value.accepted is None
        desk.redis.execute_command("REPLICAOF", "NO", "ONE")
        shelter.replica.resume()


# -- at the door -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["disk", "", "Memory", 1, ["local"]])
async def test_an_unknown_durability_is_refused_before_anything_is_sent(level: Any) -> None:
    choices = "durability must be one of memory, local, replicated"
    with pytest.raises(ConfigError, match=choices):
        Queue("nowhere", durability=level)
    queue = Queue("nowhere", redis_url="redis://127.0.0.1:1")
    with pytest.raises(ConfigError, match=choices):
        await queue.add("n", 1, durability=level)
    with pytest.raises(ConfigError, match=choices):
        await queue.add_unique("n", 1, job_id="a", durability=level)
    with pytest.raises(ConfigError, match=choices):
        await queue.add_bulk([{"data": 1}], durability=level)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("replicas", 0),
        ("replicas", 1_001),
        ("durability_timeout_ms", 0),
        ("durability_timeout_ms", 3_600_001),
    ],
)
def test_a_wait_has_bounds(option: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{option} must be from 1 to"):
        Queue("nowhere", **{option: value})
