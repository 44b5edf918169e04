"""Holding deliveries: renewing them, giving them back, leaving the group."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from chasquimq import wire
from chasquimq.config import U32
from chasquimq.errors import StoreUnavailableError
from tests.chaos.kit.proxy import Proxy
from tests.store.shelf import GROUP, Shelf, claim, envelope, member

BEFALLS = ["add", "read", "ack", "ack", "ack", "give back", "delete", "delete", "trim"]


def consumers(shelf: Shelf) -> list[str]:
    return [row["name"].decode() for row in shelf.redis.xinfo_consumers(shelf.keys.stream, GROUP)]


def ghosts(shelf: Shelf, count: int) -> list[bytes]:
    """Entries that we hold and whose body is gone; as many as one wants."""
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(count):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        ids: list[bytes] = pipe.execute()
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    shelf.redis.xdel(shelf.keys.stream, *ids)
    return ids


# -- renew ---------------------------------------------------------------------------------------


async def test_renewing_resets_the_clock_and_leaves_the_count(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", times=3)
    await asyncio.sleep(0.06)
    assert shelf.idle_ms(entry_id) >= 60
    assert await jobs.renew(shelf.link, [entry_id]) == []
    assert shelf.idle_ms(entry_id) < 50
    assert shelf.pending() == {entry_id: ("me", 3)}


async def test_renewing_tells_what_was_lost_and_does_not_steal_it_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"acked", b"deleted", b"mine")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[0]])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[1])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[2])
    shelf.redis.xdel(shelf.keys.stream, ids[2])
    assert await jobs.renew(shelf.link, ids) == ids[:3]
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[3]: ("me", 1)}


async def test_an_answer_of_another_shape_breaks_the_connection_that_asked(shelf: Shelf) -> None:
    """Not the other one, which belongs to the event loop of another thread."""
    jobs = await shelf.join()
    ids, own = shelf.deliver(b"a"), shelf.link.pipe
    with Proxy(shelf.server.server.port) as proxy:
        link = await shelf.new_link(proxy.url)
        for reply in (b":1\r\n", b"*0\r\n", b"*1\r\n$1\r\nx\r\n"):
            proxy.corrupt(1, reply, command="EVALSHA")
            with pytest.raises(StoreUnavailableError, match="unexpected shape"):
                await jobs.renew(link, ids)
            assert await jobs.renew(link, ids) == []
        assert link.reconnects == 3 and shelf.link.pipe is own


async def test_renewing_touches_nothing_that_was_not_named(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b")
    await asyncio.sleep(0.06)
    await jobs.renew(shelf.link, ids[:1])
    assert shelf.idle_ms(ids[0]) < 50 <= shelf.idle_ms(ids[1])


async def test_renewing_nothing_is_a_sign_of_life(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.renew(shelf.link, []) == []


async def test_two_thousand_are_renewed_at_once(shelf: Shelf) -> None:
    jobs = await shelf.join()
    with shelf.redis.pipeline(transaction=False) as pipe:
        for _ in range(2_000):
            pipe.xadd(shelf.keys.stream, {"d": "x"})
        ids = pipe.execute()
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    assert await jobs.renew(shelf.link, ids) == []


async def test_renewing_without_a_group_says_that_it_is_gone(shelf: Shelf) -> None:
    with pytest.raises(StoreUnavailableError, match="NOGROUP"):
        await shelf.jobs().renew(shelf.link, [b"1-1"])


async def test_what_is_young_is_let_be_and_what_is_lost_is_told_all_the_same(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"young", b"old", b"lost")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "me", 0, [ids[0]], idle=5_000, justid=True)
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "me", 0, [ids[1]], idle=90_000, justid=True)
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[2]])
    assert await jobs.renew(shelf.link, ids, young_ms=60_000) == [ids[2]]
    assert shelf.idle_ms(ids[1]) < 5_000 <= shelf.idle_ms(ids[0])


# -- entries whose body is gone, trimmed or deleted by somebody else -------------------------------


@pytest.mark.parametrize("how", ["xdel", "xtrim"])
async def test_renewing_keeps_ours_what_has_lost_its_body(shelf: Shelf, how: str) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"bare", b"whole")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "me", 0, ids, idle=600_000, justid=True)
    shelf.put(b"unread")
    if how == "xdel":
        shelf.redis.xdel(shelf.keys.stream, ids[0])
    else:
        shelf.redis.xtrim(shelf.keys.stream, maxlen=2, approximate=False)
    for _ in range(3):
        assert await jobs.renew(shelf.link, ids) == []
    assert shelf.pending() == {ids[0]: ("me", 1), ids[1]: ("me", 1)}
    assert shelf.idle_ms(ids[1]) < 600_000


@pytest.mark.parametrize("verb", ["retry", "bury", "ack"])
async def test_what_has_lost_its_body_and_is_still_ours_can_be_settled(
    shelf: Shelf, verb: str
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(envelope())
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await jobs.renew(shelf.link, [entry_id]) == []
    if verb == "ack":
        assert jobs.dialect.acked(await shelf.send(jobs.dialect.ack([entry_id]))) == 1
    elif verb == "retry":
        assert await shelf.send(jobs.retry(entry_id, 0, member())) == 1
        assert list(shelf.delayed()) == [member()]
    else:
        dead = wire.pack_dead(envelope(), b"", entry_id, "unrecoverable")
        assert await shelf.send(jobs.bury(entry_id, dead, 0)) == 1
        assert [fields[b"d"] for fields in shelf.dead()] == [envelope()]
    assert shelf.pending() == {}


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_befell_the_stream_a_renewal_changes_nobodys_holdings(
    shelf: Shelf, seed: int
) -> None:
    """How bodies come to be missing is for the servers' own counters to notice; they are fed
    with all that may happen to them, in any order."""
    dice = random.Random(seed)
    jobs, key = await shelf.join(), shelf.keys.stream
    for step in range(120):
        held = list(shelf.pending())
        found = [one for one, _ in shelf.entries()]
        match dice.choice(BEFALLS):
            case "add":
                shelf.put(*[b"x"] * dice.randint(1, 6))
            case "read":
                shelf.redis.xreadgroup(GROUP, dice.choice(["me", "you"]), {key: ">"}, count=4)
            case "ack" if held:
                await shelf.send(jobs.dialect.ack([dice.choice(held)]))
            case "give back" if held:
                await jobs.give_back([[dice.choice(held), []]])
            case "delete" if found:
                shelf.redis.xdel(key, dice.choice(found))
            case "trim":
                shelf.redis.xtrim(key, maxlen=max(len(found) - 2, 0), approximate=False)
        before = shelf.pending()
        mine = [one for one, (who, _) in before.items() if who == "me"]
        assert await jobs.renew(shelf.link, [*mine, b"1-1"]) == [b"1-1"], step
        assert shelf.pending() == before, step


async def test_large_bodies_are_all_renewed_though_not_in_one_go(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(*[bytes(1_000_000)] * 10, b"bare")
    shelf.redis.xdel(shelf.keys.stream, ids[-1])
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "me", 0, ids[:-1], idle=600_000, justid=True)
    assert await jobs.renew(shelf.link, [*ids, b"1-1"]) == [b"1-1"]
    assert max(shelf.idle_ms(one) for one in ids) < 600_000
    assert len(shelf.pending()) == 11


async def test_who_renews_is_alive_for_the_server_whatever_it_holds(shelf: Shelf) -> None:
    """A sweep leaves what the living hold; the clock of an entry without a body cannot be reset."""
    if shelf.server.server.binary.version < (7, 2, 0):
        pytest.skip("before Redis 7.2 only a read is a sign of life")
    jobs = await shelf.join()
    ids = ghosts(shelf, 1)

    def idle() -> int:
        (row,) = shelf.redis.xinfo_consumers(shelf.keys.stream, GROUP)
        return int(row["idle"])

    while idle() < 300:
        await asyncio.sleep(0.01)
    await jobs.renew(shelf.link, ids)
    assert idle() < 300 <= shelf.idle_ms(ids[0])


async def test_a_renewal_after_we_left_does_not_bring_our_name_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.leave()
    assert await jobs.renew(shelf.link, [b"1-1"]) == [b"1-1"]
    assert consumers(shelf) == []


async def test_adopting_finds_what_lies_behind_many_without_a_body(shelf: Shelf) -> None:
    jobs = await shelf.join()
    bare = ghosts(shelf, 1_200)
    ids = shelf.deliver(b"a", b"b", b"c")
    assert [row[0] for row in await jobs.adopt(2)] == ids[:2]
    assert [row[0] for row in await jobs.adopt(1_000)] == ids
    assert len(shelf.pending()) == len(bare) + 3


# -- give back -----------------------------------------------------------------------------------


async def test_what_nobody_ran_wakes_a_blocked_reader_at_once(shelf: Shelf) -> None:
    jobs, other = await shelf.join(), await shelf.new_link()
    ids = shelf.deliver(b"a", b"b")
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(shelf.send(shelf.jobs("next").read(10, 20_000), other))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await jobs.give_back([[ids[0], [b"d", b"a"]], [ids[1], [b"d", b"b"], 0, 0]]) == 2
    assert time.monotonic() - began < 5
    rows = reading.result()[0][1]
    rest = (await shelf.send(shelf.jobs("next").read(10, 1)) or [[b"", []]])[0][1]
    assert [fields for _, fields in [*rows, *rest]] == [[b"d", b"a"], [b"d", b"b"]]


async def test_giving_back_what_nobody_ran_charges_nobody(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await jobs.give_back([[entry_id, [b"d", b"a"]]])
    assert shelf.pending() == {}
    ((copy_id, fields),) = shelf.entries()
    assert copy_id > entry_id and fields == {b"d": b"a"}
    await shelf.send(shelf.jobs("next").read(1, 1_000))
    assert shelf.pending() == {copy_id: ("next", 1)}  # as a first delivery


async def test_a_copy_keeps_every_field_in_order(shelf: Shelf) -> None:
    jobs = await shelf.join()
    fields = {b"d": b"a\0", b"n": b"send", b"extra": b"\xff", b"trace": b""}
    entry_id = shelf.redis.xadd(shelf.keys.stream, fields)
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    await jobs.give_back([[entry_id, []]])
    assert [list(found.items()) for _, found in shelf.entries()] == [list(fields.items())]


@pytest.mark.parametrize("before", [1, 2, 7])
async def test_a_suspect_given_back_keeps_its_count_and_can_be_claimed_at_once(
    shelf: Shelf, before: int
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a", consumer="ghost", times=before)
    await asyncio.sleep(0.005)
    (row,) = await claim(jobs, 1, 1)
    assert row[3] == before
    assert await jobs.give_back([row]) == 1
    ((found, fields, idle, count),) = await claim(shelf.jobs("next"), 3_600_000, 1)
    assert (found, fields, count) == (entry_id, [b"d", b"a"], before)
    assert idle >= 3_600_000


async def test_what_is_no_longer_ours_is_not_given_back(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"claimed", b"acked", b"suspect")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[0], ids[2]])
    shelf.redis.xack(shelf.keys.stream, GROUP, ids[1])
    rows = [[ids[0], [], 0, 0], [ids[1], [], 0, 0], [ids[2], [], 0, 1]]
    assert await jobs.give_back(rows) == 0
    assert shelf.pending() == {ids[0]: ("thief", 2), ids[2]: ("thief", 2)}
    assert [found for found, _ in shelf.entries()] == ids


async def test_an_entry_whose_body_is_gone_brings_no_copy(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await jobs.give_back([[entry_id, []]]) == 0
    assert shelf.entries() == []


async def test_what_was_trimmed_meanwhile_is_given_back_out_of_our_memory(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"whole", b"bare", b"lost")
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "thief", 0, [ids[2]])
    shelf.redis.xdel(shelf.keys.stream, *ids[1:])
    fields = [b"d", b"bare", b"n", b"send", b"extra", b"\xff"]
    rows = [[ids[0], [b"d", b"whole"]], [ids[1], fields], [ids[2], [b"d", b"lost"]]]
    assert await jobs.give_back(rows) == 2
    assert shelf.pending() == {ids[2]: ("thief", 2)}
    found = [[part for pair in one.items() for part in pair] for _, one in shelf.entries()]
    assert found == [[b"d", b"whole"], fields]


CHARGES = [(0, 2, 2), (5, 2, 7), (1, 0, 1), (U32, 1, U32)]


@pytest.mark.parametrize(("attempt", "before", "charged"), CHARGES)
async def test_what_comes_out_of_our_memory_keeps_its_deliveries_on_its_account(
    shelf: Shelf, attempt: int, before: int, charged: int
) -> None:
    """The new entry's own count begins at nought, and a job that kills must not run for ever."""
    jobs = await shelf.join()
    body = envelope("a", attempt=attempt)
    (entry_id,) = shelf.deliver(body, times=before + 1)
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await jobs.give_back([[entry_id, [b"d", body, b"n", b"send"], 0, before]]) == 1
    ((_, found),) = shelf.entries()
    assert found == {b"d": envelope("a", attempt=charged), b"n": b"send"}


async def test_what_is_another_s_by_now_does_not_come_out_of_our_memory(shelf: Shelf) -> None:
    """Between the look that found no body and the copy anything may happen."""
    jobs = await shelf.join()
    [entry_id] = shelf.deliver(envelope(), consumer="heir")
    shelf.redis.xdel(shelf.keys.stream, entry_id)
    assert await jobs._restore([entry_id, [b"d", envelope()], 0, 0]) == 0
    assert shelf.entries() == []
    assert shelf.pending() == {entry_id: ("heir", 1)}


async def test_what_nobody_can_read_comes_out_of_our_memory_as_it_was(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ids = shelf.deliver(b"a", b"b", times=2)
    shelf.redis.xdel(shelf.keys.stream, *ids)
    rows = [[ids[0], [b"d", b"\xc1"], 0, 1], [ids[1], [b"no body", b"x"], 0, 1]]
    assert await jobs.give_back(rows) == 2
    assert [fields for _, fields in shelf.entries()] == [{b"d": b"\xc1"}, {b"no body": b"x"}]


async def test_giving_back_nothing_asks_nobody(shelf: Shelf) -> None:
    assert await shelf.jobs().give_back([]) == 0
    assert shelf.redis.exists(shelf.keys.stream) == 0


# -- leave ---------------------------------------------------------------------------------------


async def test_a_consumer_leaves_when_nothing_is_pending_under_its_name(shelf: Shelf) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    shelf.deliver(b"b", consumer="other")
    assert not await jobs.leave()
    assert consumers(shelf) == ["me", "other"]
    shelf.redis.xack(shelf.keys.stream, GROUP, entry_id)
    assert await jobs.leave()
    assert consumers(shelf) == ["other"]


async def test_nothing_is_lost_when_a_consumer_that_holds_something_tries_to_leave(
    shelf: Shelf,
) -> None:
    jobs = await shelf.join()
    (entry_id,) = shelf.deliver(b"a")
    await jobs.leave()
    await asyncio.sleep(0.005)
    assert [row[0] for row in await claim(shelf.jobs("next"), 1, 1)] == [entry_id]


async def test_leaving_twice_is_no_error(shelf: Shelf) -> None:
    jobs = await shelf.join()
    assert await jobs.leave() and await jobs.leave()


@pytest.mark.parametrize("bare", [1, 100, 250])
async def test_entries_without_a_body_keep_nobodys_name_in_the_group(
    shelf: Shelf, bare: int
) -> None:
    jobs = await shelf.join()
    ghosts(shelf, bare)
    others = shelf.deliver(b"other", b"bare", consumer="other")
    shelf.redis.xdel(shelf.keys.stream, others[1])
    assert await jobs.leave()
    assert consumers(shelf) == ["other"]
    assert shelf.pending() == dict.fromkeys(others, ("other", 1))


async def test_one_entry_with_a_body_keeps_the_name(shelf: Shelf) -> None:
    jobs = await shelf.join()
    ghosts(shelf, 150)
    (entry_id,) = shelf.deliver(b"a")
    ghosts(shelf, 1)
    assert not await jobs.leave()
    assert consumers(shelf) == ["me"]
    assert shelf.pending() == {entry_id: ("me", 1)}


async def test_an_entry_with_more_fields_than_lua_can_pass_on_keeps_no_other_from_going_back(
    shelf: Shelf,
) -> None:
    jobs = await shelf.join()
    wide = shelf.redis.xadd(shelf.keys.stream, {str(number): "x" for number in range(5_000)})
    plain = shelf.deliver(envelope("a"))[0]
    assert await jobs.give_back([[plain, []], [wide, []]]) == 2
    assert list(shelf.pending()) == [wide]
    assert shelf.idle_ms(wide) > 2_000_000_000  # up for claiming
    assert [fields for entry_id, fields in shelf.entries() if entry_id != wide] == [
        {b"d": envelope("a")}
    ]


async def test_claiming_our_own_takes_nothing_that_others_have(shelf: Shelf) -> None:
    jobs = await shelf.join()
    mine, theirs = shelf.deliver(envelope("a"), envelope("b"))
    shelf.redis.xclaim(shelf.keys.stream, GROUP, "other", 0, [theirs])
    rows = await jobs.claim([mine, theirs], None)
    assert [(row[0], row[3]) for row in rows] == [(mine, 1)]  # its run before this one counts
    assert shelf.pending() == {mine: ("me", 2), theirs: ("other", 2)}
