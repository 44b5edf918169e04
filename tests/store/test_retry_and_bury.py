"""The moves of a delivery we hold: to the delayed set, to the DLQ. Refused when it is not ours."""

from __future__ import annotations

import pytest

from chasquimq import wire
from chasquimq.store import Jobs
from tests.store.shelf import GROUP, Shelf, envelope, member

DEAD = wire.pack_dead(envelope(), b"send", b"1-1", "unrecoverable", job_id="job", attempt=3)


async def lose(shelf: Shelf, entry_id: bytes, how: str) -> None:
    if how == "claimed":
        shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [entry_id])
    elif how == "settled":
        shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
        shelf.redis.xdel(shelf.keys.stream, entry_id)
    else:
        shelf.put(b"never delivered")


def move(jobs: Jobs, verb: str, entry_id: bytes, *, delay_ms: int = 0, trim: int = 0) -> bytes:
    if verb == "retry":
        return jobs.retry(entry_id, delay_ms, member())
    return jobs.bury(entry_id, DEAD, trim)


# -- retry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_ms", [0, 1, 1_500, 2**52])
async def test_a_retry_lies_in_the_delayed_set_until_its_time_by_the_servers_clock(
    shelf: Shelf, delay_ms: int
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    before = shelf.now_ms()
    assert await shelf.send(jobs.retry(entry_id, delay_ms, member("job", b"send"))) == 1
    after = shelf.now_ms()
    ((found, score),) = shelf.delayed().items()
    assert found == member("job", b"send")
    assert before + delay_ms <= score <= after + delay_ms and score == int(score)
    assert shelf.entries() == [] and shelf.pending() == {}


async def test_a_member_may_hold_any_bytes(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    odd = bytes(range(256)) + b"\r\n"
    await shelf.send(jobs.retry(entry_id, 0, odd))
    assert list(shelf.delayed()) == [odd]


# -- bury ----------------------------------------------------------------------------------------


async def test_a_burial_writes_its_fields_and_the_servers_time(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    before = shelf.now_ms()
    assert await shelf.send(jobs.bury(entry_id, DEAD, 0)) == 1
    (found,) = shelf.dead()
    assert list(found) == [
        b"d",
        b"n",
        b"source_id",
        b"reason",
        b"job_id",
        b"attempt",
        b"failed_at_ms",
    ]
    assert [part for pair in found.items() for part in pair][:-2] == DEAD
    assert before <= int(found[b"failed_at_ms"]) <= shelf.now_ms()
    assert shelf.entries() == [] and shelf.pending() == {}


async def test_a_burial_answers_how_many_dead_there_are(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", b"c")
    assert [await shelf.send(jobs.bury(entry_id, DEAD, 0)) for entry_id in ids] == [1, 2, 3]


@pytest.mark.parametrize(("trim", "low", "high"), [(0, 301, 301), (100, 100, 200)])
async def test_the_dlq_is_trimmed_only_when_asked(
    shelf: Shelf, trim: int, low: int, high: int
) -> None:
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(300):
            pipe.xadd(shelf.keys.dlq, {"d": "old"})
        pipe.execute()
    (entry_id,) = shelf.deliver(b"a")
    assert low <= await shelf.send(jobs.bury(entry_id, DEAD, trim)) <= high
    assert shelf.dead()[-1][b"d"] == envelope()


# -- whose delivery it is --------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["retry", "bury"])
async def test_a_move_is_done_once(shelf: Shelf, verb: str) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    command = move(jobs, verb, entry_id)
    assert [await shelf.send(command) for _ in range(2)] == [1, 0]
    assert len(shelf.delayed()) + len(shelf.dead()) == 1


@pytest.mark.parametrize("how", ["claimed", "settled", "never delivered"])
@pytest.mark.parametrize("verb", ["retry", "bury"])
async def test_a_move_of_what_is_not_ours_is_refused_and_writes_nothing(
    shelf: Shelf, verb: str, how: str
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await lose(shelf, entry_id, how)
    if how == "never delivered":
        entry_id = shelf.entries()[-1][0]
    before = shelf.entries(), shelf.pending()
    assert await shelf.send(move(jobs, verb, entry_id)) == 0
    assert (shelf.entries(), shelf.pending()) == before
    assert shelf.redis.exists(shelf.keys.delayed, shelf.keys.dlq) == 0


@pytest.mark.parametrize("verb", ["retry", "bury"])
async def test_the_thief_may_move_what_it_took(shelf: Shelf, verb: str) -> None:
    await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await lose(shelf, entry_id, "claimed")
    assert await shelf.send(move(shelf.jobs("thief"), verb, entry_id)) == 1
    assert len(shelf.delayed()) + len(shelf.dead()) == 1


@pytest.mark.parametrize("verb", ["retry", "bury"])
async def test_a_move_takes_along_no_neighbour(shelf: Shelf, verb: str) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", b"c")
    assert await shelf.send(move(jobs, verb, ids[1])) == 1
    assert [found for found, _ in shelf.entries()] == [ids[0], ids[2]]
    assert list(shelf.pending()) == [ids[0], ids[2]]
