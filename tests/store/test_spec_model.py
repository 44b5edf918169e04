"""Specs against a model: whatever happens in whatever order, a window fires once.

Every change of a spec is one script, so interleavings of processes are sequences of these. Two
holders fire what they saw some time ago, others write, pause, take up and remove, and a program
that knows none of this writes as the reference does. Windows are numbered anew each time a spec is
armed, so a number that comes twice was fired twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from chasquimq.repeat import PAUSED_MS
from chasquimq.store.specs import Fired, Seen
from tests.store.drawer import fired, firing, spec
from tests.store.faulty import wipe
from tests.store.shelf import Shelf

KEYS = ("a", "b")
WHO = ("me", "you")
key, who, limit = st.sampled_from(KEYS), st.sampled_from(WHO), st.sampled_from([0, 0, 1, 5, 9])
windows, left = st.integers(0, 3), st.none() | st.integers(0, 9)
stale = st.sampled_from([0, 0, 0, 1, 2])  # how many looks ago
over = st.sampled_from([False, False, False, True])
# Somebody looks, another changes it, and the first one fires what he saw.
changes = st.one_of(
    st.tuples(st.just("upsert"), key, limit, st.booleans(), st.just(0)),
    st.tuples(st.sampled_from(["pause", "resume"]), key, st.just(0)),
    st.tuples(st.sampled_from(["remove", "unset score", "unset hash"]), key),
    st.tuples(st.just("tick"), who, windows, over, left),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), who, windows, over, left),
        st.tuples(st.just("fire"), who, stale, windows, over, left),
        st.tuples(st.just("look and"), who, changes),
        st.tuples(st.just("upsert"), key, limit, st.booleans(), stale),
        st.tuples(st.sampled_from(["pause", "resume"]), key, stale),
        st.tuples(st.just("write plainly"), key, limit),
        st.tuples(st.sampled_from(["remove", "unset score", "unset hash", "break in two"]), key),
        st.tuples(st.sampled_from(["look", "release"]), who),
        st.tuples(st.just("expire")),
    ),
    min_size=10,
    max_size=50,
)
START = [
    ("upsert", "a", 0, False, 0),
    ("upsert", "b", 3, False, 0),
    ("tick", "me", 2, False, 4),
]


@dataclass
class Model:
    """What one spec is: its score and the fields of its hash, each None where it is not there."""

    score: int | None = None
    hash: dict[bytes, bytes] | None = None

    @property
    def packed(self) -> bytes | None:
        return None if self.hash is None else self.hash.get(b"spec")

    def as_seen(self, seen: Seen) -> bool:
        return self.score == seen.score and self.packed == seen.packed and seen.armed


@dataclass
class World:
    shelf: Shelf
    base: int = 0
    lock: str | None = None
    models: dict[str, Model] = field(default_factory=lambda: {one: Model() for one in KEYS})
    limits: dict[bytes, int] = field(default_factory=dict)
    views: dict[str, list[Seen]] = field(default_factory=lambda: {one: [] for one in WHO})
    glances: dict[str, list[Seen]] = field(default_factory=lambda: {one: [] for one in KEYS})
    jobs: list[str] = field(default_factory=list)

    def arm(self) -> int:
        self.base += 1_000
        return self.base

    def pack(self, name: str, limit: int) -> bytes:
        packed = spec(name, b"%d" % self.base, limit=limit)
        self.limits[packed] = limit
        return packed

    async def glance(self, name: str, nth: int) -> Seen:
        """How somebody saw it: now, or some time ago."""
        _, seen = await self.shelf.store.specs.see(name)
        self.glances[name].append(seen)
        return self.glances[name][-1 - min(nth, len(self.glances[name]) - 1)]

    # -- schedulers ------------------------------------------------------------------------------

    async def look(self, holder: str) -> None:
        found = await self.shelf.store.specs.due(holder, 60, 10)
        assert found.leads is (self.lock in (None, holder))
        if not found.leads:
            return
        self.lock = holder
        live = {n: m for n, m in self.models.items() if m.score is not None and m.score < PAUSED_MS}
        for name, model in live.items():
            if model.packed is None:
                self.models[name] = Model()
        due = sorted(n for n in live if self.models[n].packed is not None)
        assert sorted(row.key.decode() for row in found.rows) == due, "all, and none that is paused"
        assert found.gone == len(live) - len(due)
        for row in found.rows:
            model = self.models[row.key.decode()]
            assert model.as_seen(row) and model.hash is not None
            assert row.catchup == model.hash.get(b"catchup")
            self.views[holder].append(row)

    async def tick(self, holder: str, many: int, over: bool, left: int | None) -> None:
        await self.look(holder)
        for nth in range(len(KEYS)):
            await self.fire(holder, nth, many, over, left)

    async def look_and(self, holder: str, change: tuple[Any, ...]) -> None:
        await self.look(holder)
        await run(self, [change])
        for nth in range(len(KEYS)):
            await self.fire(holder, nth, 1, False, None)

    async def fire(self, holder: str, nth: int, many: int, over: bool, left: int | None) -> None:
        if not self.views[holder]:
            return
        seen = self.views[holder][-1 - min(nth, len(self.views[holder]) - 1)]
        name, packed = seen.key.decode(), seen.packed or b""
        limit, model = self.limits[packed], self.models[name]
        moments = range(seen.score, seen.score + many)
        then = None if over else seen.score + many
        one = firing(seen, *moments, then=then, limit=limit, left=left)
        [answer] = await self.shelf.store.specs.fire(holder, [one])
        if self.lock != holder:
            assert answer == Fired(leads=False)
            return
        if not model.as_seen(seen):
            assert answer == Fired(leads=True)
            return
        hash_ = model.hash or {}
        before = int(hash_.get(b"fired", b"0"))
        count = min(many, max(limit - before, 0)) if limit else many
        ends = over or bool(limit and before + count >= limit)
        assert answer == Fired(True, count, ends)
        self.jobs += [f"{name}@{at}" for at in moments[:count]]
        if ends:
            self.models[name] = Model()
            return
        hash_.pop(b"catchup", None)
        if count:
            hash_[b"fired"] = b"%d" % (before + count)
        if left is not None:
            hash_[b"catchup"] = b"%d %d" % (left, seen.score + many)
        model.score = seen.score + many

    async def release(self, holder: str) -> None:
        await self.shelf.store.specs.release(holder)
        self.lock = None if self.lock == holder else self.lock

    async def expire(self) -> None:
        self.shelf.redis.delete(self.shelf.keys.scheduler_lock)
        self.lock = None

    # -- whoever writes --------------------------------------------------------------------------

    async def upsert(self, name: str, limit: int, keep: bool, nth: int) -> None:
        seen, model = await self.glance(name, nth), self.models[name]
        next_ms = self.arm()
        packed = self.pack(name, limit)
        # All scores here have passed, so one that has changed meanwhile may have fired them.
        moved = model.score != (seen.score if seen.armed else None)
        may = model.packed == seen.packed and (model.score is not None if keep else not moved)
        put = self.shelf.store.specs.put(seen, packed, b"", None if keep else next_ms)
        assert await put is may
        if not may:
            return
        model.hash = {**(model.hash or {}), b"spec": packed}
        if not keep:
            model.score = next_ms
            model.hash.pop(b"aside", None)
            model.hash.pop(b"catchup", None)

    async def pause(self, name: str, nth: int) -> None:
        seen, model = await self.glance(name, nth), self.models[name]
        may = model.as_seen(seen)
        assert await self.shelf.store.specs.put_aside(seen) is may
        if may:
            self._moved(model, PAUSED_MS, b"%d " % seen.stood)

    async def resume(self, name: str, nth: int) -> None:
        seen, model, next_ms = await self.glance(name, nth), self.models[name], self.arm()
        may = model.as_seen(seen)
        if model.packed is not None and model.hash is not None:
            may = may and model.hash.get(b"aside") == seen.aside
        assert await self.shelf.store.specs.move(seen, next_ms) is may
        if may:
            self._moved(model, next_ms, b"")

    def _moved(self, model: Model, score: int, aside: bytes) -> None:
        model.score = score
        if model.hash is None or model.packed is None:
            return
        for note in (b"aside", b"catchup"):
            model.hash.pop(note, None)
        if aside:
            model.hash[b"aside"] = aside

    async def remove(self, name: str) -> None:
        there = self.models[name] != Model()
        assert await self.shelf.store.specs.drop(name) is there
        self.models[name] = Model()

    # -- a program that knows less ---------------------------------------------------------------

    async def write_plainly(self, name: str, limit: int) -> None:
        model, model.score = self.models[name], self.arm()
        packed = self.pack(name, limit)
        model.hash = {**(model.hash or {}), b"spec": packed}
        self.shelf.redis.zadd(self.shelf.keys.repeat, {name: model.score})
        self.shelf.redis.hset(self.shelf.keys.spec(name), "spec", packed)

    async def unset_score(self, name: str) -> None:
        self.models[name].score = None
        self.shelf.redis.zrem(self.shelf.keys.repeat, name)

    async def unset_hash(self, name: str) -> None:
        self.models[name].hash = None
        self.shelf.redis.delete(self.shelf.keys.spec(name))

    async def break_in_two(self, name: str) -> None:
        """What the reference leaves when it fires what was removed: a score and a counter."""
        self.models[name] = Model(self.arm(), {b"fired": b"1"})
        self.shelf.redis.zadd(self.shelf.keys.repeat, {name: self.base})
        self.shelf.redis.delete(self.shelf.keys.spec(name))
        self.shelf.redis.hset(self.shelf.keys.spec(name), "fired", 1)

    # -- what holds always -----------------------------------------------------------------------

    def check(self) -> None:
        found = dict(self.shelf.redis.zrange(self.shelf.keys.repeat, 0, -1, withscores=True))
        scores = {n.encode(): m.score for n, m in self.models.items() if m.score is not None}
        assert found == scores
        for name, model in self.models.items():
            assert self.shelf.redis.hgetall(self.shelf.keys.spec(name)) == (model.hash or {})
        assert fired(self.shelf) == self.jobs
        assert len(set(self.jobs)) == len(self.jobs), "a window fired twice"
        assert all(int(job.partition("@")[2]) < PAUSED_MS for job in self.jobs)


async def run(world: World, steps: Sequence[tuple[Any, ...]]) -> None:
    for verb, *rest in steps:
        await getattr(world, verb.replace(" ", "_"))(*rest)
        world.check()


EACH_CHANGE = [
    ("look and", "me", change)
    for change in (
        ("upsert", "a", 0, True, 0),
        ("upsert", "a", 0, False, 0),
        ("pause", "a", 0),
        ("pause", "a", 0),
        ("resume", "a", 0),
        ("tick", "me", 1, False, 3),
        ("expire",),
        ("unset score", "a"),
        ("write plainly", "a", 1),
        ("unset hash", "a"),
        ("break in two", "a"),
        ("remove", "b"),
    )
]


OF_A_LOOK_AGO = [
    ("resume", "a", 0),
    ("pause", "a", 1),  # another score
    ("upsert", "a", 0, True, 0),
    ("pause", "a", 1),  # other bytes
    ("pause", "a", 0),
    ("upsert", "a", 0, False, 0),
    ("upsert", "a", 0, False, 1),  # other bytes
    ("remove", "a"),
    ("upsert", "a", 0, False, 1),  # none
]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
@example(steps=EACH_CHANGE)
@example(steps=OF_A_LOOK_AGO)
async def test_a_window_fires_once_and_a_spec_is_what_was_made_of_it(
    shelf: Shelf, steps: list[tuple[Any, ...]]
) -> None:
    wipe(shelf)
    world = World(shelf)
    await run(world, START)
    assert world.jobs == ["b@2000", "b@2001", "a@1000", "a@1001"]
    await run(world, steps)
    # Nothing stays that is neither a spec nor put aside.
    await run(world, [("expire",), ("look", WHO[0])])
