"""Writing specs, putting them aside and taking them away: only if they are as they were seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.errors import StoreError, WireError
from chasquimq.job import RetryOverride
from chasquimq.repeat import PAUSED_MS
from chasquimq.store.specs import Seen, Specs
from tests.shown import shown
from tests.store.drawer import (
    AHEAD,
    PAST,
    arm,
    due,
    fields,
    fire,
    firing,
    listen,
    look,
    scores,
    snapshot,
    spec,
)
from tests.store.shelf import Shelf

OLD, NEW = spec("k"), spec("k", b"\xc3")


@pytest.fixture
def said(shelf: Shelf) -> Iterator[Callable[[], list[bytes]]]:
    ear, said = listen(shelf)
    yield said
    ear.close()


async def see(shelf: Shelf, key: str = "k") -> Seen:
    return (await shelf.store.specs.see(key))[1]


# -- seeing one ----------------------------------------------------------------------------------


async def test_where_there_is_nothing_nothing_is_seen(shelf: Shelf) -> None:
    before = shelf.now_ms()
    now_ms, seen = await shelf.store.specs.see("k")
    assert before <= now_ms <= shelf.now_ms()
    assert seen == Seen(b"k", b"", None)
    assert (seen.armed, seen.live, seen.sum, seen.fired) == (False, False, "", 0)
    assert snapshot(shelf) == {}


async def test_a_spec_is_seen_with_all_it_has(shelf: Shelf) -> None:
    retry = wire.pack_override(OLD, RetryOverride(max_attempts=7))
    arm(shelf, "k", PAUSED_MS, retry=retry, fired=12, aside=f"{PAST} broken in two")
    seen = await see(shelf)
    assert (seen.packed, seen.retry, seen.fired) == (OLD, retry, 12)
    assert (seen.armed, seen.live, seen.stood) == (True, False, PAST)
    assert seen.problem == "broken in two"
    assert seen.read().retry == RetryOverride(max_attempts=7)


async def test_parts_of_a_spec_are_seen_as_such(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"score only": AHEAD})
    assert await see(shelf, "score only") == Seen(b"score only", str(AHEAD).encode(), None)
    shelf.redis.hset(shelf.keys.spec("hash only"), "spec", OLD)
    assert await see(shelf, "hash only") == Seen(b"hash only", b"", OLD)
    shelf.redis.hset(shelf.keys.spec("counter only"), "fired", "x")
    assert await see(shelf, "counter only") == Seen(b"counter only", b"", None)
    shelf.redis.set(shelf.keys.spec("text"), "in the way")
    seen = await see(shelf, "text")
    assert seen == Seen(b"text", b"", None)
    with pytest.raises(WireError, match="not a hash with a spec"):
        seen.read()


@pytest.mark.parametrize(
    ("place", "score"),
    [
        (b"0", 0),
        (b"1.75", 1),
        (b"1700000000000", PAST),
        (b"9007199254740990", PAUSED_MS - 1),
        (b"9007199254740991", PAUSED_MS),
        (b"9007199254740992", PAUSED_MS),
        (b"1.0000000000000001e+300", PAUSED_MS),
        (b"-1", PAUSED_MS),
        (b"-inf", PAUSED_MS),
        (b"inf", PAUSED_MS),
        (b"nan", PAUSED_MS),
        (b"", PAUSED_MS),
    ],
    ids=shown,
)
def test_a_score_that_is_no_moment_never_comes(place: bytes, score: int) -> None:
    seen = Seen(b"k", place, OLD)
    assert seen.score == seen.stood == score
    assert seen.live == (score < PAUSED_MS)


@pytest.mark.parametrize(
    ("aside", "stood", "problem"),
    [
        (None, PAUSED_MS, None),
        (b"", PAUSED_MS, None),
        (b"5", 5, None),
        (b"5 ", 5, None),
        (b"5 why it is", 5, "why it is"),
        (b"x why", PAUSED_MS, "why"),
        (b"5 \xff", 5, "\ufffd"),
    ],
    ids=shown,
)
def test_a_note_tells_where_a_spec_stood_and_why(
    aside: bytes | None, stood: int, problem: str | None
) -> None:
    seen = Seen(b"k", str(PAUSED_MS).encode(), OLD, aside=aside)
    assert (seen.stood, seen.problem) == (stood, problem)
    live = Seen(b"k", b"7", OLD, aside=aside)
    assert (live.stood, live.problem) == (7, None), "beside a moment it says nothing"


@pytest.mark.parametrize(
    ("catchup", "left"),
    [
        (None, None),
        (b"", None),
        (b"3 7", 3),
        (b"0 7", 0),
        (b"3 8", None),
        (b"3", None),
        (b"3 x", None),
        (b"x 7", 0),
    ],
    ids=shown,
)
def test_a_catch_up_is_read_beside_its_score_only(catchup: bytes | None, left: int | None) -> None:
    assert Seen(b"k", b"7", OLD, catchup=catchup).left == left


# -- writing -------------------------------------------------------------------------------------


async def put(shelf: Shelf, seen: Seen, next_ms: int | None = AHEAD, retry: bytes = b"") -> bool:
    return await shelf.store.specs.put(seen, NEW, retry, next_ms)


async def test_a_new_spec_is_its_bytes_and_its_next_fire_and_nothing_else(shelf: Shelf) -> None:
    assert await put(shelf, await see(shelf)) is True
    assert scores(shelf) == {b"k": AHEAD}
    assert fields(shelf) == {b"spec": NEW}
    assert set(snapshot(shelf)) == {shelf.keys.repeat, shelf.keys.spec("k")}


async def test_a_spec_may_begin_with_the_first_millisecond(shelf: Shelf) -> None:
    assert await put(shelf, await see(shelf), 0) is True
    assert scores(shelf) == {b"k": 0}


CHANGES: dict[str, Callable[[Shelf], Any]] = {
    "other bytes": lambda s: s.redis.hset(s.keys.spec("k"), "spec", spec("k", b"\xc2")),
    "no bytes": lambda s: s.redis.hset(s.keys.spec("k"), "spec", b""),
    "removed": lambda s: s.redis.delete(s.keys.spec("k"), s.keys.repeat),
    "no spec": lambda s: s.redis.hdel(s.keys.spec("k"), "spec"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("next_ms", [AHEAD, None])
async def test_who_saw_something_else_writes_nothing(
    shelf: Shelf, change: str, next_ms: int | None
) -> None:
    arm(shelf, "k", PAST, fired=2)
    seen = await see(shelf)
    CHANGES[change](shelf)
    before = snapshot(shelf)
    assert await put(shelf, seen, next_ms) is False
    assert snapshot(shelf) == before


async def test_of_many_who_saw_nothing_one_writes(shelf: Shelf) -> None:
    seen = await see(shelf)
    drawers = [Specs(shelf.keys, await shelf.new_link()) for _ in range(8)]
    written = await asyncio.gather(
        *[one.put(seen, spec("k", bytes([n])), b"", AHEAD + n) for n, one in enumerate(drawers)]
    )
    [winner] = [n for n, done in enumerate(written) if done]
    assert fields(shelf) == {b"spec": spec("k", bytes([winner]))}
    assert scores(shelf) == {b"k": AHEAD + winner}


async def test_a_spec_that_goes_on_keeps_its_place_and_all_that_belongs_to_it(
    shelf: Shelf,
) -> None:
    kept = {"fired": "2", "aside": f"{PAST} ", "catchup": f"3 {PAST}"}
    arm(shelf, "k", PAUSED_MS, **kept)
    assert await put(shelf, await see(shelf), None) is True
    assert scores(shelf) == {b"k": PAUSED_MS}
    packed = {name.encode(): value.encode() for name, value in kept.items()}
    assert fields(shelf) == {b"spec": NEW, **packed}


async def test_a_spec_that_goes_on_may_fire_between_the_look_and_the_write(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await see(shelf)
    await fire(shelf, firing(await look(shelf), PAST, then=PAST + 1_000))
    assert await put(shelf, seen, None) is True
    assert scores(shelf) == {b"k": PAST + 1_000}, "it does not go back to what has fired"
    assert fields(shelf) == {b"spec": NEW, b"fired": b"1"}


async def test_a_spec_cannot_go_on_without_a_place(shelf: Shelf) -> None:
    shelf.redis.hset(shelf.keys.spec("k"), mapping={"spec": OLD, "fired": 5})
    seen, before = await see(shelf), snapshot(shelf)
    assert await put(shelf, seen, None) is False
    assert snapshot(shelf) == before
    assert await put(shelf, seen) is True
    assert scores(shelf) == {b"k": AHEAD}
    assert fields(shelf) == {b"spec": NEW, b"fired": b"5"}


async def test_a_spec_that_is_armed_anew_forgets_why_it_was_aside(shelf: Shelf) -> None:
    arm(shelf, "k", PAUSED_MS, fired=2, aside="1 broken", catchup=f"3 {PAST}", retry=b"r")
    assert await put(shelf, await see(shelf)) is True
    assert scores(shelf) == {b"k": AHEAD}
    assert fields(shelf) == {b"spec": NEW, b"fired": b"2"}


async def test_the_override_comes_and_goes_with_the_spec(shelf: Shelf) -> None:
    assert await put(shelf, await see(shelf), retry=b"override")
    assert fields(shelf) == {b"spec": NEW, b"retry": b"override"}
    assert await put(shelf, await see(shelf), None, retry=b"another")
    assert fields(shelf) == {b"spec": NEW, b"retry": b"another"}
    assert await put(shelf, await see(shelf), None)
    assert fields(shelf) == {b"spec": NEW}


async def test_what_is_no_hash_is_not_written_over(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.spec("k"), "in the way")
    before = snapshot(shelf)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await put(shelf, await see(shelf))
    assert snapshot(shelf) == before


@pytest.mark.parametrize(
    ("others", "next_ms", "wakes"),
    [
        ({}, AHEAD, True),
        ({"z": AHEAD}, AHEAD, True),
        ({"z": AHEAD + 1}, AHEAD, True),
        ({"a": AHEAD}, AHEAD, False),  # that one wakes in time
        ({"z": AHEAD - 1}, AHEAD, False),
        ({"k": AHEAD}, None, False),
        ({"k": AHEAD}, AHEAD + 1, True),
    ],
)
async def test_a_scheduler_is_woken_for_what_comes_first_now(
    shelf: Shelf,
    said: Callable[[], list[bytes]],
    others: dict[str, int],
    next_ms: int | None,
    wakes: bool,
) -> None:
    for key, score in others.items():
        arm(shelf, key, score)
    assert await put(shelf, await see(shelf), next_ms)
    assert said() == ([b"specs"] if wakes else [])


# -- moving --------------------------------------------------------------------------------------


async def test_a_spec_that_is_put_aside_keeps_where_it_stood_and_is_not_due(shelf: Shelf) -> None:
    arm(shelf, "k", PAST, fired=2, catchup=f"3 {PAST}", retry=b"r")
    assert await shelf.store.specs.put_aside(await look(shelf), "no good") is True
    assert scores(shelf) == {b"k": PAUSED_MS}
    assert fields(shelf) == {
        b"spec": OLD,
        b"retry": b"r",
        b"fired": b"2",
        b"aside": f"{PAST} no good".encode(),
    }
    found = await due(shelf)
    assert found.rows == () and found.depth == 1
    seen = await see(shelf)
    assert (seen.live, seen.stood, seen.problem) == (False, PAST, "no good")


async def test_a_spec_that_is_put_aside_again_still_knows_where_it_stood(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    for why in ("", "no good"):
        assert await shelf.store.specs.put_aside(await see(shelf), why)
    seen = await see(shelf)
    assert (seen.stood, seen.problem) == (PAST, "no good")


async def test_a_spec_that_is_taken_up_is_as_if_nothing_had_been(shelf: Shelf) -> None:
    arm(shelf, "k", PAST, fired=2)
    seen = await see(shelf)
    assert await shelf.store.specs.put_aside(seen)
    paused = await see(shelf)
    assert (paused.stood, paused.problem) == (PAST, None)
    assert await shelf.store.specs.move(paused, PAST + 5) is True
    assert scores(shelf) == {b"k": PAST + 5}
    assert fields(shelf) == {b"spec": OLD, b"fired": b"2"}
    assert (await look(shelf)).score == PAST + 5


@pytest.mark.parametrize(
    "change",
    [
        *CHANGES.values(),
        lambda s: s.redis.zadd(s.keys.repeat, {"k": PAST + 1}),
        lambda s: s.redis.zadd(s.keys.repeat, {"k": PAUSED_MS}),
        lambda s: s.redis.zrem(s.keys.repeat, "k"),
    ],
    ids=[*CHANGES, "fired", "paused", "no score"],
)
@pytest.mark.parametrize("aside", ["", "5 why"])
async def test_a_spec_that_was_changed_meanwhile_is_not_moved(
    shelf: Shelf, change: Callable[[Shelf], Any], aside: str
) -> None:
    arm(shelf, "k", PAST, fired=2)
    seen = await see(shelf)
    change(shelf)
    before = snapshot(shelf)
    assert await shelf.store.specs.move(seen, PAUSED_MS, aside) is False
    assert snapshot(shelf) == before


async def test_where_there_is_nothing_nothing_is_moved(shelf: Shelf) -> None:
    assert await shelf.store.specs.move(await see(shelf), AHEAD) is False
    assert snapshot(shelf) == {}


async def test_what_is_no_hash_is_put_aside_without_a_note(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"k": PAST})
    shelf.redis.set(shelf.keys.spec("k"), "in the way")
    seen = await look(shelf)
    assert await shelf.store.specs.put_aside(seen, "no hash") is True
    assert scores(shelf) == {b"k": PAUSED_MS}
    assert shelf.redis.get(shelf.keys.spec("k")) == b"in the way"
    assert await shelf.store.specs.move(await see(shelf), AHEAD) is True
    assert scores(shelf) == {b"k": AHEAD}


async def test_a_key_without_a_spec_is_put_aside_and_no_hash_is_made(shelf: Shelf) -> None:
    shelf.redis.zadd(shelf.keys.repeat, {"k": AHEAD})
    assert await shelf.store.specs.put_aside(await see(shelf)) is True
    assert set(snapshot(shelf)) == {shelf.keys.repeat}


async def test_a_spec_that_is_moved_to_the_front_wakes_the_scheduler(
    shelf: Shelf, said: Callable[[], list[bytes]]
) -> None:
    arm(shelf, "k", PAUSED_MS)
    arm(shelf, "other", AHEAD)
    assert await shelf.store.specs.move(await see(shelf), AHEAD + 1)
    assert said() == []
    assert await shelf.store.specs.move(await see(shelf), AHEAD - 1)
    assert said() == [b"specs"]
    assert await shelf.store.specs.put_aside(await see(shelf))
    assert said() == []


# -- removing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [True, False])
@pytest.mark.parametrize("hash_", ["hash", "text", None])
async def test_a_spec_is_removed_with_whatever_there_is_of_it(
    shelf: Shelf, score: bool, hash_: str | None
) -> None:
    arm(shelf, "other", AHEAD)
    rest = snapshot(shelf)
    if score:
        shelf.redis.zadd(shelf.keys.repeat, {"k": PAST})
    if hash_ == "hash":
        shelf.redis.hset(shelf.keys.spec("k"), "spec", OLD)
    elif hash_:
        shelf.redis.set(shelf.keys.spec("k"), hash_)
    assert await shelf.store.specs.drop("k") is (score or hash_ is not None)
    assert snapshot(shelf) == rest
    assert await shelf.store.specs.drop("k") is False
