"""What was done: its result is kept and its entry acked, if it is still ours."""

from __future__ import annotations

from itertools import count

import pytest

from chasquimq.errors import StoreError, StoreUnavailableError
from chasquimq.store import Kept
from tests.store.faulty import break_off, places, wipe
from tests.store.shelf import GROUP, Shelf, envelope


def lose(shelf: Shelf, entry_id: bytes, how: str) -> bytes:
    """Make it somebody else's, or nobody's; answers the id to ask about."""
    if how == "claimed":
        shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [entry_id])
    elif how == "settled":
        shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
        shelf.redis.xdel(shelf.keys.stream, entry_id)
    else:
        (entry_id,) = shelf.put(b"never delivered")
    return entry_id


LOST = pytest.mark.parametrize("how", ["claimed", "settled", "never delivered"])


# -- finish ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [b"", b"\xc0", bytes(range(256)) + b"\r\n", bytes(300_000)])
async def test_the_result_is_kept_for_its_time_and_the_entry_is_gone(
    shelf: Shelf, result: bytes
) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b")
    assert await shelf.send(jobs.finish([Kept(ids[0], "job-1", result)], 60)) == 1
    key = shelf.keys.result("job-1")
    assert shelf.redis.get(key) == result
    assert 50 < shelf.redis.ttl(key) <= 60
    assert [one for one, _ in shelf.entries()] == ids[1:]
    assert shelf.pending() == {ids[1]: ("me", 1)}
    assert await shelf.store.results.get(["job-1", "job-2"]) == [result, None]


async def test_a_later_run_replaces_the_result_and_its_time(shelf: Shelf) -> None:
    jobs = await shelf.join()
    shelf.redis.set(shelf.keys.result("job"), b"old")
    (entry_id,) = shelf.deliver(b"a")
    assert await shelf.send(jobs.finish([Kept(entry_id, "job", b"new")], 60)) == 1
    assert shelf.redis.get(shelf.keys.result("job")) == b"new"
    assert shelf.redis.ttl(shelf.keys.result("job")) > 0


@pytest.mark.parametrize("old", [None, b"of the one who has it now"])
@LOST
async def test_a_result_that_comes_too_late_is_refused_and_changes_nothing(
    shelf: Shelf, how: str, old: bytes | None
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    entry_id = lose(shelf, entry_id, how)
    key = shelf.keys.result("job")
    if old is not None:
        shelf.redis.set(key, old)
    before = shelf.entries(), shelf.pending()
    assert await shelf.send(jobs.finish([Kept(entry_id, "job", b"late")], 60)) == 0
    assert (shelf.entries(), shelf.pending()) == before
    assert shelf.redis.get(key) == old
    assert shelf.redis.ttl(key) == (-2 if old is None else -1)


async def test_a_finish_sent_twice_is_done_once(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    command = jobs.finish([Kept(entry_id, "job", b"x")], 60)
    assert [await shelf.send(command) for _ in range(2)] == [1, 0]
    assert shelf.redis.get(shelf.keys.result("job")) == b"x"


async def test_a_job_whose_body_is_gone_can_still_be_finished(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await shelf.send(jobs.finish([Kept(entry_id, "job", b"x")], 60)) == 1
    assert shelf.redis.get(shelf.keys.result("job")) == b"x" and shelf.pending() == {}


async def test_of_many_those_that_are_still_ours_are_kept(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"settled", b"mine", b"bare", b"untouched")
    lose(shelf, ids[0], "claimed")
    lose(shelf, ids[1], "settled")
    shelf.redis.xdel(shelf.keys.stream, ids[3])
    kept = [Kept(one, f"job {n}", b"%d" % n) for n, one in enumerate(ids[:4])]
    assert await shelf.send(jobs.finish(kept, 60)) == 2
    found = await shelf.store.results.get([one.job_id for one in kept])
    assert found == [None, None, b"2", b"3"]
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[4]: ("me", 1)}
    assert [one for one, _ in shelf.entries()] == [ids[0], ids[4]]


@pytest.mark.parametrize("order", [1, -1])
async def test_many_that_an_outage_held_back_are_kept_at_once(shelf: Shelf, order: int) -> None:
    """In whatever order they ended, and with many others between them."""
    jobs = await shelf.join()
    ids = shelf.deliver(*[b"%d" % n for n in range(4_000)])
    mine = [*ids[:1_500], *ids[-2:]][::order]
    kept = [Kept(one, one.decode(), one) for one in mine]
    command = jobs.finish(kept, 60)
    assert [await shelf.send(command) for _ in range(2)] == [1_502, 0]
    assert list(shelf.pending()) == ids[1_500:-2]
    assert await shelf.store.results.get([one.job_id for one in kept]) == mine


@pytest.mark.parametrize("ttl_s", [0, -1, 2**63])
async def test_a_time_that_the_server_refuses_leaves_the_job_pending(
    shelf: Shelf, ttl_s: int
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    with pytest.raises(StoreError, match=r"invalid expire|out of range"):
        await shelf.send(jobs.finish([Kept(entry_id, "job", b"x")], ttl_s))
    assert shelf.pending() == {entry_id: ("me", 1)}
    assert not shelf.redis.exists(shelf.keys.result("job"))


async def test_a_finish_that_breaks_off_anywhere_leaves_the_job_or_its_result(
    shelf: Shelf,
) -> None:
    seen = []
    for nth in count(1):
        wipe(shelf)
        jobs = await shelf.join()
        ids = shelf.deliver(envelope("a"), envelope("b"))
        kept = [Kept(one, name, b"x") for one, name in zip(ids, "ab", strict=True)]
        command = jobs.finish(kept, 60)
        if not await break_off(shelf, nth, lambda link, c=command: shelf.send(c, link)):
            break
        found = places(shelf)
        seen.append((sorted(found["a"]), sorted(found["b"])))
        await shelf.send(command)
        assert places(shelf) == {"a": ["kept"], "b": ["kept"]}
    # At no time is one done without its result being there.
    waits, both, kept_one = ["pending"], ["kept", "pending"], ["kept"]
    asked = [(waits, waits), (waits, waits)]
    assert seen == [*asked, (both, waits), (both, both), (kept_one, kept_one)]


# -- acks of what may no longer be ours ------------------------------------------------------------


async def test_only_what_is_still_ours_is_acked(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"settled", b"mine", b"bare", b"untouched")
    lose(shelf, ids[0], "claimed")
    lose(shelf, ids[1], "settled")
    shelf.redis.xdel(shelf.keys.stream, ids[3])
    (unread,) = shelf.put(b"never delivered")
    asked = [*ids[:4], unread, b"1-1"]
    assert await shelf.send(jobs.ack_held(asked)) == 2
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[4]: ("me", 1)}
    assert [one for one, _ in shelf.entries()] == [ids[0], ids[4], unread]
    assert await shelf.send(jobs.ack_held(asked)) == 0


async def test_many_acks_that_an_outage_held_back_go_out_at_once(shelf: Shelf) -> None:
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(2_000):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        ids = pipe.execute()
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, ids[:10])
    assert await shelf.send(jobs.ack_held(ids)) == 1_990
    assert list(shelf.pending()) == ids[:10] == [one for one, _ in shelf.entries()]


async def test_acks_that_break_off_anywhere_can_be_sent_again(shelf: Shelf) -> None:
    for nth in count(1):
        wipe(shelf)
        jobs = await shelf.join()
        ids = shelf.deliver(envelope("a"), envelope("b"))
        shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[1]])
        command = jobs.ack_held(ids)
        if not await break_off(shelf, nth, lambda link, c=command: shelf.send(c, link)):
            break
        await shelf.send(command)
        assert places(shelf) == {"b": ["pending"]}
    assert nth > 4


async def test_a_server_without_memory_takes_them(own_shelf: Shelf) -> None:
    jobs = await own_shelf.join()
    ids = own_shelf.deliver(b"a", b"b")
    own_shelf.redis.config_set("maxmemory", 1)
    assert await own_shelf.send(jobs.ack_held(ids)) == 2
    assert own_shelf.pending() == {}


async def test_without_a_group_both_say_that_it_is_gone(shelf: Shelf) -> None:
    jobs = shelf.jobs()
    for command in (jobs.finish([Kept(b"1-1", "job", b"x")], 60), jobs.ack_held([b"1-1"])):
        with pytest.raises(StoreUnavailableError, match="NOGROUP"):
            await shelf.send(command)
    assert not shelf.redis.exists(shelf.keys.result("job"))
