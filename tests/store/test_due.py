"""Seeing what is due: one holder at a time, the earliest first, never before its time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chasquimq.errors import StoreError, WireError
from chasquimq.repeat import PAUSED_MS
from chasquimq.store.specs import DueSpecs, Specs
from tests.store.drawer import AHEAD, PAST, AtThatMoment, arm, due, scores, snapshot, spec
from tests.store.shelf import Shelf

# -- the lock ------------------------------------------------------------------------------------


async def test_one_holder_leads_and_the_other_sees_and_changes_nothing(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    shelf.redis.zadd(shelf.keys.repeat, {"dangling": PAST})
    assert (await due(shelf, "a", batch=1)).leads
    before = snapshot(shelf)
    assert await due(shelf, "b") == DueSpecs(leads=False)
    assert snapshot(shelf) == before


async def test_each_look_renews_the_lock(shelf: Shelf) -> None:
    await due(shelf, "a")
    assert shelf.redis.get(shelf.keys.scheduler_lock) == b"a"
    assert 4_000 < shelf.redis.pttl(shelf.keys.scheduler_lock) <= 5_000
    shelf.redis.expire(shelf.keys.scheduler_lock, 1_000)
    await due(shelf, "a")
    assert 4_000 < shelf.redis.pttl(shelf.keys.scheduler_lock) <= 5_000


async def test_a_released_or_expired_lock_is_free(shelf: Shelf) -> None:
    await due(shelf, "a")
    await shelf.store.specs.release("b")
    assert not (await due(shelf, "b")).leads, "only its holder releases a lock"
    await shelf.store.specs.release("a")
    assert (await due(shelf, "b")).leads
    shelf.redis.pexpire(shelf.keys.scheduler_lock, 1)
    while shelf.redis.exists(shelf.keys.scheduler_lock):
        await asyncio.sleep(0.001)
    assert (await due(shelf, "c")).leads


async def test_the_promoters_lock_is_another(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.promoter_lock, "promoter", ex=60)
    assert (await due(shelf)).leads


async def test_a_lock_of_the_reference_is_respected(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.scheduler_lock, "c-9", ex=5)
    assert not (await due(shelf)).leads


# -- what is shown -------------------------------------------------------------------------------


async def test_nothing_written_means_nothing_due_and_nothing_to_wait_for(shelf: Shelf) -> None:
    before = shelf.now_ms()
    found = await due(shelf)
    assert found == DueSpecs(True, found.now_ms)
    assert before <= found.now_ms <= shelf.now_ms()
    assert list(snapshot(shelf)) == [shelf.keys.scheduler_lock]


async def test_what_is_due_comes_by_score_and_then_by_key(shelf: Shelf) -> None:
    for key, score in [("b", PAST), ("c", PAST - 1), ("a", PAST + 1), ("B", PAST), ("ä", PAST)]:
        arm(shelf, key, score)
    found = await due(shelf)
    assert [row.key.decode() for row in found.rows] == ["c", "B", "b", "ä", "a"]
    assert [row.score - PAST for row in found.rows] == [-1, 0, 0, 0, 1]


async def test_a_row_shows_all_that_firing_needs(shelf: Shelf) -> None:
    arm(shelf, "k", PAST, retry=b"override", catchup=f"7 {PAST}", fired=3, aside="1 no")
    [row] = (await due(shelf)).rows
    assert (row.key, row.place, row.packed) == (b"k", str(PAST).encode(), spec("k"))
    assert (row.retry, row.catchup, row.left) == (b"override", f"7 {PAST}".encode(), 7)
    assert row.live and row.armed and row.problem is None and row.stood == PAST


@pytest.mark.parametrize(
    ("offset", "shown", "next_in"),
    [(-1, True, None), (0, True, None), (0.5, False, 1), (1, False, 1), (1_000, False, 1_000)],
)
async def test_nothing_is_due_a_millisecond_before_its_time(
    shelf: Shelf, offset: float, shown: bool, next_in: int | None
) -> None:
    arm(shelf, "k", PAST)
    link: Any = AtThatMoment(shelf.link, offset)
    found = await Specs(shelf.keys, link).due("me", 5, 10)
    assert bool(found.rows) is shown
    assert found.next_ms == (None if next_in is None else found.now_ms + next_in)


async def test_the_next_is_the_first_that_is_not_due_and_all_are_counted(shelf: Shelf) -> None:
    for key, score in [("a", PAST), ("b", AHEAD + 1), ("c", AHEAD), ("d", PAUSED_MS)]:
        arm(shelf, key, score)
    found = await due(shelf)
    assert (found.next_ms, found.depth, found.more, found.gone) == (AHEAD, 4, False, 0)
    shelf.redis.zrem(shelf.keys.repeat, "b", "c")
    assert (await due(shelf)).next_ms == PAUSED_MS, "which never comes"


async def test_a_batch_shows_no_more_than_asked_and_tells_that_there_is_more(
    shelf: Shelf,
) -> None:
    for number in range(5):
        arm(shelf, f"k{number}", PAST + number)
    found = await due(shelf, batch=2)
    assert [row.key for row in found.rows] == [b"k0", b"k1"]
    assert found.more and found.depth == 5
    assert not (await due(shelf, batch=6)).more


async def test_the_largest_batch_is_shown_at_once(shelf: Shelf) -> None:
    packed = spec("k")
    for number in range(1_000):
        arm(shelf, f"{number}", PAST, spec=packed)
    assert len((await due(shelf, batch=1_000)).rows) == 1_000


async def test_big_specs_come_a_few_at_a_time_and_each_has_its_turn(shelf: Shelf) -> None:
    big = spec("k", bytes(1_500_000))
    for number in range(5):
        arm(shelf, f"k{number}", PAST + number, spec=big)
    seen = []
    for expected, more in [(3, True), (2, False)]:
        found = await due(shelf)
        assert (len(found.rows), found.more) == (expected, more)
        for row in found.rows:
            seen.append(row.key)
            assert await shelf.store.specs.move(row, AHEAD)
    assert seen == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    arm(shelf, "vast", PAST, spec=spec("k", bytes(5_000_000)))
    arm(shelf, "small", PAST + 1)
    found = await due(shelf)
    assert [row.key for row in found.rows] == [b"vast"] and found.more
    shelf.redis.zrem(shelf.keys.repeat, "small")
    assert not (await due(shelf)).more


# -- what others left ----------------------------------------------------------------------------


async def test_a_key_without_a_spec_is_removed_when_it_is_due(shelf: Shelf) -> None:
    """The reference leaves such behind when it fires what somebody removes."""
    shelf.redis.zadd(shelf.keys.repeat, {"none": PAST, "later": AHEAD, "counted": PAST})
    shelf.redis.hset(shelf.keys.spec("counted"), "fired", 1)
    arm(shelf, "k", PAST)
    found = await due(shelf)
    assert (found.gone, found.depth, [row.key for row in found.rows]) == (2, 2, [b"k"])
    assert set(scores(shelf)) == {b"k", b"later"}
    assert not shelf.redis.exists(shelf.keys.spec("counted"))
    assert (await due(shelf)).gone == 0


async def test_keys_without_specs_hold_up_no_spec_behind_them(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {f"none{n}": PAST for n in range(4)})
    arm(shelf, "k", PAST + 1)
    looks = [await due(shelf, batch=2) for _ in range(3)]
    assert [(look.gone, look.more, len(look.rows)) for look in looks] == [
        (2, True, 0),
        (2, True, 0),
        (0, False, 1),
    ]


async def test_what_is_no_hash_is_shown_without_bytes_and_stays(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"text": PAST})
    shelf.redis.set(shelf.keys.spec("text"), "in the way")
    arm(shelf, "k", PAST + 1)
    found = await due(shelf)
    assert [(row.key, row.packed) for row in found.rows] == [(b"text", None), (b"k", spec("k"))]
    assert found.gone == 0 and shelf.redis.get(shelf.keys.spec("text")) == b"in the way"


@pytest.mark.parametrize("packed", [b"", b"\xc1", b"\x00" * 9])
async def test_bytes_that_are_no_spec_are_shown_as_they_are(shelf: Shelf, packed: bytes) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"k": PAST})
    shelf.redis.hset(shelf.keys.spec("k"), "spec", packed)
    [row] = (await due(shelf)).rows
    assert row.packed == packed
    assert await shelf.store.specs.put_aside(row, "cannot be read")
    assert (await due(shelf)).rows == ()


@pytest.mark.parametrize(
    ("score", "shown", "live", "next_ms"),
    [
        ("-inf", True, False, None),
        ("-5", True, False, None),
        ("0", True, True, None),
        ("1.5", True, True, None),
        (f"{PAST}.25", True, True, None),
        ("inf", False, False, PAUSED_MS),
        ("1e300", False, False, PAUSED_MS),
        (str(PAUSED_MS), False, False, PAUSED_MS),
        (f"{AHEAD}.5", False, True, AHEAD + 1),
    ],
)
async def test_a_score_that_others_wrote_does_no_harm(
    shelf: Shelf, score: str, shown: bool, live: bool, next_ms: int | None
) -> None:
    arm(shelf, "odd", score)
    arm(shelf, "ours", PAST)
    found = await due(shelf)
    assert sorted(row.key for row in found.rows) == ([b"odd", b"ours"] if shown else [b"ours"])
    assert found.next_ms == next_ms
    _, seen = await shelf.store.specs.see("odd")
    assert seen.live is live
    assert await shelf.store.specs.move(seen, AHEAD), "it is recognised by the same number"
    assert scores(shelf)[b"odd"] == AHEAD


async def test_a_key_of_any_bytes_is_shown_and_can_be_put_aside(shelf: Shelf) -> None:
    raw = b"\xff\x00 {other}:\r\n"
    arm(shelf, raw, PAST)
    [row] = (await due(shelf)).rows
    assert row.key == raw
    with pytest.raises(WireError, match="not UTF-8"):
        row.read()
    assert await shelf.store.specs.put_aside(row, "its key is not UTF-8")
    assert scores(shelf) == {raw: PAUSED_MS}


@pytest.mark.parametrize("key", ["repeat", "scheduler_lock"])
async def test_a_key_of_another_type_is_an_error_that_ends_with_it(shelf: Shelf, key: str) -> None:
    arm(shelf, "k", PAST)
    name = getattr(shelf.keys, key)
    kept = snapshot(shelf)
    shelf.redis.delete(name)
    shelf.redis.rpush(name, "in the way")
    for _ in range(2):
        with pytest.raises(StoreError, match="WRONGTYPE"):
            await due(shelf)
    shelf.redis.delete(name)
    if key == "repeat":
        shelf.redis.restore(name, 0, kept[name][0])
    assert len((await due(shelf)).rows) == 1
