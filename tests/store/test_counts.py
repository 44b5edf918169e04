"""How many jobs wait, run, are delayed, are dead: what is really there, whatever was done to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chasquimq.errors import StoreError
from chasquimq.job import Counts
from chasquimq.store import Jobs
from tests.store.faulty import wipe
from tests.store.shelf import GROUP, Shelf, envelope, member

on_a_shared_server = settings(
    max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def counts(shelf: Shelf) -> Counts:
    return await shelf.store.inspect.counts(GROUP)


def calls(shelf: Shelf, command: str) -> int:
    stats: dict[str, Any] = shelf.redis.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def order(entry_id: bytes) -> tuple[int, ...]:
    return tuple(map(int, entry_id.split(b"-")))


def really(shelf: Shelf) -> tuple[list[bytes], int]:
    """What the group has not been given yet, and how many are pending, by looking at all."""
    groups = shelf.redis.xinfo_groups(shelf.keys.stream)
    (read_to,) = [g["last-delivered-id"] for g in groups if g["name"] == GROUP.encode()]
    ids = [entry_id for entry_id, _ in shelf.entries()]
    return [one for one in ids if order(one) > order(read_to)], len(shelf.pending())


# -- plain cases ---------------------------------------------------------------------------------


async def test_a_queue_that_nobody_used_has_nothing_and_gets_nothing(shelf: Shelf) -> None:
    assert await counts(shelf) == Counts()
    assert list(shelf.redis.scan_iter(match=shelf.keys.tag + b"*", count=10_000)) == []


async def test_each_place_is_counted(shelf: Shelf) -> None:
    await shelf.join()
    shelf.deliver(*[b"running"] * 2)
    shelf.put(*[b"waiting"] * 3)
    shelf.redis.zadd(shelf.keys.delayed, {member(f"{n}"): n for n in range(4)})
    for _ in range(5):
        shelf.redis.xadd(shelf.keys.dlq, {b"d": b"dead"})
    shelf.redis.zadd(shelf.keys.repeat, {f"spec-{n}": n for n in range(6)})
    found = await counts(shelf)
    assert found.to_dict() == {
        "waiting": 3,
        "running": 2,
        "delayed": 4,
        "dead": 5,
        "repeatables": 6,
        "oldest_waiting_ms": found.oldest_waiting_ms,
    }


async def test_without_a_group_everything_waits(shelf: Shelf) -> None:
    shelf.put(b"a", b"b")
    found = await counts(shelf)
    assert (found.waiting, found.running) == (2, 0)
    await shelf.join()
    shelf.deliver(b"c")
    other = await shelf.store.inspect.counts("others")
    assert (other.waiting, other.running) == (3, 0)


async def test_the_oldest_is_the_next_to_be_delivered_by_the_servers_clock(shelf: Shelf) -> None:
    await shelf.join()
    before = shelf.now_ms()
    shelf.redis.xadd(shelf.keys.stream, {b"d": b"running"}, id=f"{before - 9_000}-0")
    shelf.redis.xreadgroup(GROUP, "me", {shelf.keys.stream: ">"})
    assert (await counts(shelf)).oldest_waiting_ms is None
    shelf.redis.xadd(shelf.keys.stream, {b"d": b"waiting"}, id=f"{before - 5_000}-7")
    shelf.put(b"younger")
    age = (await counts(shelf)).oldest_waiting_ms
    assert age is not None and 5_000 <= age <= shelf.now_ms() - before + 5_000


async def test_an_entry_from_the_future_has_waited_no_time(shelf: Shelf) -> None:
    shelf.redis.xadd(shelf.keys.stream, {b"d": b"a"}, id=f"{shelf.now_ms() + 90_000}-0")
    assert (await counts(shelf)).oldest_waiting_ms == 0


async def test_a_server_without_memory_still_counts(own_shelf: Shelf) -> None:
    own_shelf.put(b"a")
    own_shelf.redis.config_set("maxmemory", 1)
    assert (await counts(own_shelf)).waiting == 1


async def test_it_is_one_command_that_writes_nothing(own_shelf: Shelf) -> None:
    shelf = own_shelf
    await counts(shelf)
    shelf.put(b"a")
    before = calls(shelf, "evalsha")
    offset = shelf.redis.info("persistence")["rdb_changes_since_last_save"]
    await counts(shelf)
    assert calls(shelf, "evalsha") == before + 1
    assert shelf.redis.info("persistence")["rdb_changes_since_last_save"] == offset


async def test_a_key_of_another_type_is_an_error_that_says_so(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.dlq, "in the way")
    with pytest.raises(StoreError, match="WRONGTYPE"):
        await counts(shelf)


# -- whatever was done ---------------------------------------------------------------------------

PLACES = st.lists(st.integers(0, 30), max_size=4)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["put", "read"]), st.integers(1, 6)),
    st.tuples(
        st.sampled_from(["ack", "ack only", "claim", "give back", "retry", "delete"]), PLACES
    ),
    st.tuples(st.sampled_from(["trim", "recreate", "move group"]), st.integers(0, 9)),
)


class Actor:
    """Does to the stream what workers, producers and operators do."""

    def __init__(self, shelf: Shelf, jobs: Jobs) -> None:
        self._shelf = shelf
        self._jobs = jobs
        self._redis: Any = shelf.redis
        self._key = shelf.keys.stream

    async def do(self, what: str, how: Any) -> None:
        redis, key = self._redis, self._key
        if what == "put":
            self._shelf.put(*[envelope()] * how)
        elif what == "read":
            redis.xreadgroup(GROUP, "me", {key: ">"}, count=how)
        elif what == "trim":
            redis.xtrim(key, maxlen=how, approximate=False)
        elif what == "recreate":
            redis.xgroup_destroy(key, GROUP)
            redis.xgroup_create(key, GROUP, "0" if how % 2 else "$", mkstream=True)
        elif what == "move group":
            ids = [b"0-0", *(entry_id for entry_id, _ in self._shelf.entries())]
            redis.xgroup_setid(key, GROUP, ids[how % len(ids)])
        elif what == "delete":
            self._each(how, list(dict(self._shelf.entries())), lambda one: redis.xdel(key, one))
        else:
            await self._settle(what, how)

    async def _settle(self, what: str, how: list[int]) -> None:
        redis, key, held = self._redis, self._key, list(self._shelf.pending())
        if what == "ack":
            ids = [held[n] for n in how if n < len(held)]
            if ids:
                await self._shelf.send(self._jobs.dialect.ack(ids))
        elif what == "ack only":
            self._each(how, held, lambda one: redis.xack(key, GROUP, one))
        elif what == "claim":
            self._each(how, held, lambda one: redis.xclaim(key, GROUP, "other", 0, [one]))
        elif what == "give back":
            await self._jobs.give_back([[held[n], []] for n in how if n < len(held)])
        elif what == "retry":
            for n in how:
                if n < len(held):
                    await self._shelf.send(self._jobs.retry(held[n], 60_000, member()))

    @staticmethod
    def _each(places: list[int], ids: list[bytes], do: Any) -> None:
        for n in places:
            if n < len(ids):
                do(ids[n])


@on_a_shared_server
@given(steps=st.lists(STEPS, min_size=1, max_size=25))
@example(steps=[("put", 6), ("read", 2), ("delete", [2]), ("read", 1), ("put", 2)])
@example(steps=[("put", 6), ("read", 4), ("ack", [1, 3]), ("delete", [0]), ("put", 1)])
@example(steps=[("put", 6), ("read", 4), ("ack only", [0, 1]), ("delete", [4])])
@example(steps=[("put", 6), ("read", 3), ("recreate", 1), ("read", 1), ("put", 3)])
@example(steps=[("put", 6), ("read", 3), ("trim", 4), ("put", 3)])
async def test_what_waits_and_what_runs_is_what_is_there(
    shelf: Shelf, steps: list[tuple[str, Any]]
) -> None:
    wipe(shelf)
    actor = Actor(shelf, await shelf.join())
    for what, how in steps:
        await actor.do(what, how)
        found, (waiting, running) = await counts(shelf), really(shelf)
        assert (found.waiting, found.running) == (len(waiting), running), (what, how)
        assert (found.oldest_waiting_ms is None) == (not waiting)


async def test_many_that_run_and_deleted_ones_between_cost_few_commands(own_shelf: Shelf) -> None:
    """The exact look is given up after a thousand; the answer stays between its bounds."""
    shelf = own_shelf
    await shelf.join()
    ids = shelf.deliver(*[b"running"] * 3_000)
    waiting = shelf.put(*[b"waiting"] * 1_000)
    assert (await counts(shelf)).waiting == 1_000
    shelf.redis.xdel(shelf.keys.stream, waiting[5])
    shelf.redis.xdel(shelf.keys.stream, *ids[10:20])
    before = calls(shelf, "xrange")
    found = await counts(shelf)
    assert calls(shelf, "xrange") - before < 110
    assert found.running == 3_000
    assert abs(found.waiting - 999) <= 10


async def test_large_bodies_are_not_all_looked_at(own_shelf: Shelf) -> None:
    shelf = own_shelf
    await shelf.join()
    shelf.deliver(*[b"x" * 1_000_000] * 60)
    waiting = shelf.put(b"a", b"b")
    shelf.redis.xdel(shelf.keys.stream, waiting[0])
    before = calls(shelf, "xrange")
    assert (await counts(shelf)).waiting == 1
    assert calls(shelf, "xrange") - before < 5
