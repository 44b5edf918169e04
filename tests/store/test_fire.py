"""Firing: the jobs are added and the spec moves on in one step, or nothing happens at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.errors import StoreError
from chasquimq.job import Envelope, RetryOverride
from chasquimq.store.specs import Fired, Firing, Specs
from tests.shown import shown
from tests.store.drawer import (
    AHEAD,
    PAST,
    arm,
    due,
    fields,
    fire,
    fired,
    firing,
    ids,
    look,
    scores,
    snapshot,
    spec,
)
from tests.store.shelf import Shelf, envelope

VECTORS = Path(__file__).parents[1] / "vectors" / "vectors.json"
REFUSED, NOT_LEADING = Fired(leads=True), Fired(leads=False)

# -- who may -------------------------------------------------------------------------------------


def _gone(shelf: Shelf) -> None:
    shelf.redis.delete(shelf.keys.scheduler_lock)


def _anothers(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.scheduler_lock, "another", ex=60)


def _alike(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.scheduler_lock, "me2", ex=60)


def _expired(shelf: Shelf) -> None:
    shelf.redis.pexpire(shelf.keys.scheduler_lock, 1)
    while shelf.redis.exists(shelf.keys.scheduler_lock):
        pass


@pytest.mark.parametrize("lose", [_gone, _anothers, _alike, _expired], ids=lambda f: f.__name__)
@pytest.mark.parametrize("then", [AHEAD, None])
async def test_who_does_not_lead_changes_nothing_at_all(
    shelf: Shelf, lose: Callable[[Shelf], None], then: int | None
) -> None:
    arm(shelf, "k", PAST, fired=2, catchup=f"3 {PAST}")
    seen = await look(shelf)
    lose(shelf)
    before = snapshot(shelf)
    assert await fire(shelf, firing(seen, PAST, then=then, limit=3)) == [NOT_LEADING]
    assert snapshot(shelf) == before


async def test_a_holder_who_leads_again_may_fire_what_he_saw(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    _gone(shelf)
    await due(shelf, "another")
    assert await fire(shelf, firing(seen, PAST)) == [NOT_LEADING]
    await shelf.store.specs.release("another")
    await due(shelf)
    assert await fire(shelf, firing(seen, PAST)) == [Fired(True, 1, False)]
    assert fired(shelf) == ids([PAST])


CHANGES: dict[str, Callable[[Shelf], Any]] = {
    "earlier": lambda s: s.redis.zadd(s.keys.repeat, {"k": PAST - 1}),
    "later": lambda s: s.redis.zadd(s.keys.repeat, {"k": PAST + 1}),
    "a bit later": lambda s: s.redis.zadd(s.keys.repeat, {"k": PAST + 0.5}),
    "paused": lambda s: s.redis.zadd(s.keys.repeat, {"k": 2**53 - 1}),
    "no score": lambda s: s.redis.zrem(s.keys.repeat, "k"),
    "no hash": lambda s: s.redis.delete(s.keys.spec("k")),
    "neither": lambda s: s.redis.delete(s.keys.spec("k"), s.keys.repeat),
    "no spec": lambda s: s.redis.hdel(s.keys.spec("k"), "spec"),
    "other bytes": lambda s: s.redis.hset(s.keys.spec("k"), "spec", spec("k", b"\xc2")),
    "a byte more": lambda s: s.redis.hset(s.keys.spec("k"), "spec", spec("k") + b"x"),
    "no bytes": lambda s: s.redis.hset(s.keys.spec("k"), "spec", b""),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("then", [AHEAD, None])
async def test_a_spec_that_was_changed_meanwhile_is_left_as_it_is(
    shelf: Shelf, change: str, then: int | None
) -> None:
    arm(shelf, "k", PAST, fired=2, catchup=f"3 {PAST}")
    seen = await look(shelf)
    CHANGES[change](shelf)
    before = snapshot(shelf)
    assert await fire(shelf, firing(seen, PAST, then=then, limit=3)) == [REFUSED]
    assert snapshot(shelf) == before


async def test_what_is_no_hash_any_more_is_an_error_and_is_left_as_it_is(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    shelf.redis.delete(shelf.keys.spec("k"))
    shelf.redis.set(shelf.keys.spec("k"), "in the way")
    before = snapshot(shelf)
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await fire(shelf, firing(seen, PAST))
    assert snapshot(shelf) == before


async def test_of_two_calls_for_one_window_the_second_is_refused(shelf: Shelf) -> None:
    """The same words once more, too: that is what follows a lost answer."""
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    assert await fire(shelf, firing(seen, PAST)) == [Fired(True, 1, False)]
    before = snapshot(shelf)
    assert await fire(shelf, firing(seen, PAST), firing(seen, PAST, then=None)) == [REFUSED] * 2
    assert snapshot(shelf) == before


async def test_a_spec_that_is_over_is_not_brought_back_by_a_second_call(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    assert await fire(shelf, firing(seen, PAST, then=None)) == [Fired(True, 1, True)]
    assert await fire(shelf, firing(seen, PAST)) == [REFUSED]
    assert fired(shelf) == ids([PAST])
    assert set(snapshot(shelf)) == {shelf.keys.stream, shelf.keys.scheduler_lock}


async def test_a_spec_that_was_removed_does_not_fire(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    assert await shelf.store.specs.drop("k")
    [answer] = await fire(shelf, firing(seen, PAST))
    assert answer.jobs is None and shelf.entries() == []
    assert set(snapshot(shelf)) == {shelf.keys.scheduler_lock}, "no zombie"


async def test_of_many_at_once_exactly_one_fires(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    drawers = [Specs(shelf.keys, await shelf.new_link()) for _ in range(8)]
    answers = await asyncio.gather(*[one.fire("me", [firing(seen, PAST)]) for one in drawers])
    assert sorted(answers, key=repr) == [[Fired(True, 1, False)]] + [[REFUSED]] * 7
    assert fired(shelf) == ids([PAST])


async def test_a_score_with_a_fraction_is_recognised(shelf: Shelf) -> None:
    for score in (0.1, PAST + 0.1, PAST + 1 / 3, "-inf"):
        arm(shelf, "k", score)
        seen = await look(shelf)
        assert await fire(shelf, firing(seen, seen.score)) == [Fired(True, 1, False)]


# -- what happens --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        (b"", []),
        (b"tick", [(b"n", b"tick")]),
        ("ñandú-名前".encode(), [(b"n", "ñandú-名前".encode())]),
        (b"n" * 256, [(b"n", b"n" * 256)]),
    ],
    ids=shown,
)
async def test_each_window_is_an_entry_as_add_writes_it(
    shelf: Shelf, name: bytes, pairs: list[tuple[bytes, bytes]]
) -> None:
    arm(shelf, "k", PAST)
    retry = RetryOverride(max_attempts=7)
    envelopes = [
        wire.pack_envelope(Envelope("k@1", b"\x00\xff\r\n", PAST, 0)),
        wire.pack_envelope(Envelope("k@2", bytes(300), PAST, 0, retry)),
    ]
    await fire(shelf, Firing(await look(shelf), name, envelopes, AHEAD))
    found = [list(row.items()) for _, row in shelf.entries()]
    assert found == [[(b"d", one), *pairs] for one in envelopes]


async def test_the_hash_after_a_fire_is_as_the_reference_leaves_it(shelf: Shelf) -> None:
    recorded = json.loads(VECTORS.read_text())["vectors"]
    [vector] = [one for one in recorded if one["name"] == "repeat_hash_after_fire"]
    after = {one["f"].encode(): bytes.fromhex(one["v_hex"]) for one in vector["fields"]}
    key = vector["key"].partition(":repeat:spec:")[2]
    arm(shelf, key, PAST, spec=after[b"spec"])
    seen = await look(shelf)
    await fire(shelf, firing(seen, PAST, then=PAST + 10_000))
    assert fields(shelf, key) == after
    assert scores(shelf) == {key.encode(): PAST + 10_000}
    # From then on the counter counts on, also where the reference counts beside us.
    shelf.redis.hincrby(shelf.keys.spec(key), "fired", 8)
    await fire(shelf, firing(await look(shelf), 2, 3))
    assert fields(shelf, key)[b"fired"] == b"11"


@pytest.mark.parametrize(
    ("before", "limit", "windows", "jobs", "over"),
    [
        (None, 0, 3, 3, False),
        (b"7", 0, 1, 1, False),
        (None, 1, 1, 1, True),
        (b"1", 3, 1, 1, False),
        (b"2", 3, 1, 1, True),
        (None, 3, 3, 3, True),
        (b"1", 3, 3, 2, True),  # two are left
        (b"2", 3, 5, 1, True),
        (b"3", 3, 1, 0, True),  # somebody lowered it
        (b"9", 3, 2, 0, True),
        (b"2", 3, 0, 0, False),
        (None, 3, 0, 0, False),
        (b"3", 3, 0, 0, True),
        (b"9007199254740990", 0, 1, 1, False),
    ],
)
async def test_a_limit_is_reached_and_never_passed(
    shelf: Shelf, before: bytes | None, limit: int, windows: int, jobs: int, over: bool
) -> None:
    counted = {} if before is None else {"fired": before}
    arm(shelf, "k", PAST, **counted)
    moments = range(PAST, PAST + windows)
    [answer] = await fire(shelf, firing(await look(shelf), *moments, limit=limit))
    assert answer == Fired(True, jobs, over)
    assert fired(shelf) == ids(moments[:jobs]), "the oldest"
    if over:
        assert scores(shelf) == {} and fields(shelf) == {}
        return
    assert scores(shelf) == {b"k": AHEAD}
    count = int(before or 0) + jobs
    counter = {} if before is None and not jobs else {b"fired": str(count).encode()}
    assert fields(shelf) == {b"spec": spec("k"), **counter}


@pytest.mark.parametrize(
    "corrupt",
    [b"", b"x", b"1x", b"nan", b"-nan", b"inf", b"-inf", b"-5", b"1e400", b"0x1", b" 1", b"1.5"],
    ids=shown,
)
async def test_a_counter_that_is_no_number_makes_no_spec_fire_for_ever(
    shelf: Shelf, corrupt: bytes
) -> None:
    arm(shelf, "k", PAST, fired=corrupt)
    for at_ms in range(PAST, PAST + 20):
        if not (rows := (await due(shelf)).rows):
            break
        await fire(shelf, firing(rows[0], at_ms, then=at_ms + 1, limit=3))
    assert fired(shelf) == ids(range(PAST, PAST + 3))
    assert scores(shelf) == {} and fields(shelf) == {}


@pytest.mark.parametrize("windows", [0, 1, 3])
async def test_a_spec_without_a_next_fire_is_removed(shelf: Shelf, windows: int) -> None:
    arm(shelf, "k", PAST, retry=b"r", fired=4, catchup="1 1", aside="1 no", foreign="field")
    arm(shelf, "other", AHEAD)
    moments = range(PAST, PAST + windows)
    [answer] = await fire(shelf, firing(await look(shelf), *moments, then=None))
    assert answer == Fired(True, windows, True)
    assert fired(shelf) == ids(moments)
    assert scores(shelf) == {b"other": AHEAD} and fields(shelf) == {}
    assert fields(shelf, "other") == {b"spec": spec("other")}


async def test_a_fire_without_windows_only_moves_the_spec(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    assert await fire(shelf, firing(await look(shelf))) == [Fired(True, 0, False)]
    assert fields(shelf) == {b"spec": spec("k")} and scores(shelf) == {b"k": AHEAD}
    assert not shelf.redis.exists(shelf.keys.stream)


async def test_what_is_left_of_a_catch_up_is_kept_until_it_is_used_up(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    seen = await look(shelf)
    assert seen.left is None
    for left in (5, 0):
        await fire(shelf, firing(seen, seen.score, then=seen.score + 10, left=left))
        assert fields(shelf)[b"catchup"] == f"{left} {seen.score + 10}".encode()
        seen = await look(shelf)
        assert seen.left == left
    await fire(shelf, firing(seen, seen.score, then=seen.score + 10))
    assert fields(shelf) == {b"spec": spec("k"), b"fired": b"3"}


async def test_a_catch_up_counts_only_beside_the_score_it_was_written_for(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    await fire(shelf, firing(await look(shelf), PAST, then=PAST + 10, left=5))
    shelf.redis.zadd(shelf.keys.repeat, {"k": PAST + 11})
    assert (await look(shelf)).left is None


async def test_other_fields_are_left_alone(shelf: Shelf) -> None:
    arm(shelf, "k", PAST, retry=b"r", foreign="field")
    await fire(shelf, firing(await look(shelf), PAST))
    assert fields(shelf) == {
        b"spec": spec("k"),
        b"retry": b"r",
        b"foreign": b"field",
        b"fired": b"1",
    }


async def test_a_thousand_windows_fire_in_one_call_in_order(shelf: Shelf) -> None:
    arm(shelf, "k", PAST)
    moments = range(PAST, PAST + 1_000)
    assert await fire(shelf, firing(await look(shelf), *moments)) == [Fired(True, 1_000, False)]
    assert fired(shelf) == ids(moments)
    assert fields(shelf)[b"fired"] == b"1000"


# -- many at once --------------------------------------------------------------------------------


async def test_many_specs_fire_in_one_write_and_the_answers_are_in_order(shelf: Shelf) -> None:
    for key in ("fires", "changed", "ends"):
        arm(shelf, key, PAST)
    seen = {row.key.decode(): row for row in (await due(shelf)).rows}
    shelf.redis.zadd(shelf.keys.repeat, {"changed": AHEAD})
    answers = await fire(
        shelf,
        firing(seen["fires"], 1, 2),
        firing(seen["changed"], 3),
        firing(seen["ends"], 4, then=None),
    )
    assert answers == [Fired(True, 2, False), REFUSED, Fired(True, 1, True)]
    assert fired(shelf) == ["fires@1", "fires@2", "ends@4"]


async def test_nothing_to_fire_asks_nothing(shelf: Shelf) -> None:
    nobody: Any = None
    assert await Specs(shelf.keys, nobody).fire("me", []) == []


async def test_a_spec_that_cannot_be_fired_holds_up_no_other(shelf: Shelf) -> None:
    for key in ("a", "b", "c"):
        arm(shelf, key, PAST)
    rows = (await due(shelf)).rows
    shelf.redis.delete(shelf.keys.spec("b"))
    shelf.redis.set(shelf.keys.spec("b"), "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await fire(shelf, *[firing(row, PAST) for row in rows])
    assert fired(shelf) == [f"a@{PAST}", f"c@{PAST}"]
    assert scores(shelf) == {b"a": AHEAD, b"c": AHEAD, b"b": PAST}


async def test_a_server_that_forgot_the_script_fires_all_the_same(own_shelf: Shelf) -> None:
    arm(own_shelf, "k", PAST)
    seen = await look(own_shelf)
    own_shelf.redis.script_flush()
    assert await fire(own_shelf, firing(seen, PAST)) == [Fired(True, 1, False)]


async def test_a_fire_is_an_entry_like_any_other(shelf: Shelf) -> None:
    """Neither a cap nor a marker stands in its way."""
    jobs = await shelf.join()
    shelf.put(envelope("before"))
    arm(shelf, "k", PAST)
    await fire(shelf, firing(await look(shelf), PAST))
    [[_, rows]] = await shelf.send(jobs.read(10, 1_000))
    assert [wire.unpack_envelope(row[1][1]).id for row in rows] == ["before", f"k@{PAST}"]
