"""Whatever happens to a stream and to a query: each event comes once, or is reported once."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.spark_redis.events import Events
from tests.spark_redis.follower import Follow, Follower, Rows

STEPS = 60


class World:
    """A stream whose events are added, trimmed and taken away, and a query that crashes."""

    def __init__(self, events: Events, query: Follower, log: pytest.LogCaptureFixture) -> None:
        self.events = events
        self.query = query
        self.log = log
        self.added: Rows = []
        self.seen: Rows = []
        self.lost = 0
        self.parts: list[Any] | None = None

    def add(self, dice: random.Random) -> None:
        self.added += self.events.add(dice.randint(1, 30))

    def trim(self, dice: random.Random) -> None:
        there = len(self.events.rows())
        self.events.trim(max(0, there - dice.randint(0, 25)))

    def remove(self, dice: random.Random) -> None:
        there = self.events.rows()
        if there:
            self.events.remove(*dice.sample(there, min(len(there), dice.randint(1, 3))))

    def plan(self, dice: random.Random) -> None:
        if self.parts is None and self.query.plan():
            self.parts = self.query.parts()

    def read(self, dice: random.Random) -> None:
        if self.parts is not None:
            self.seen += self.query.read(self.parts)
            self.query.commit()
            self.parts = None
            for record in self.log.records:
                assert isinstance(record.args, tuple)
                assert isinstance(record.args[0], int), "the stream was never made anew"
                self.lost += record.args[0]
            self.log.clear()

    def crash(self, dice: random.Random) -> None:
        """What a batch has told that was not committed, it will tell again."""
        limit = dice.choice([1, 5, 17, 1_000_000])
        self.query.crash(maxOffsetsPerTrigger=limit, minPartitions=dice.choice([1, 1, 4]))
        self.parts = None
        self.log.clear()

    def finish(self, dice: random.Random) -> None:
        for _ in range(10_000):
            self.plan(dice)
            if self.parts is None:
                return
            self.read(dice)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("by_hand", [False, True])
def test_each_event_comes_once_or_is_reported_once(
    seed: int, by_hand: bool, events: Events, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    dice = random.Random(seed)
    world = World(events, follow(failOnDataLoss="false"), caplog)
    deeds = [world.add, world.trim, world.plan, world.read, world.read, world.crash]
    if by_hand:
        deeds.append(world.remove)
    world.finish(dice)  # it begins before the first event: what went before would be no loss
    for _ in range(STEPS):
        dice.choice(deeds)(dice)
    world.crash(dice)
    world.finish(dice)
    assert world.seen == sorted(world.seen, key=world.added.index), "out of order"
    assert len(world.seen) == len(set(world.seen)), "twice"
    assert set(events.rows()) <= set(world.seen), "left out"
    assert world.lost + len(world.seen) == len(world.added)
    if world.added:
        assert world.query.end[events.queue]["n"] == len(world.added)


@pytest.mark.parametrize("cap", [100_000, 200])
def test_beside_a_busy_producer(
    cap: int, events: Events, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    """Trims fall between any two steps of a batch."""
    dice = random.Random(cap)
    options = {"maxOffsetsPerTrigger": 100, "minPartitions": 3, "failOnDataLoss": "false"}
    world = World(events, follow(**options), caplog)
    world.finish(dice)

    def produce() -> Rows:
        rows: Rows = []
        for _ in range(60):
            rows += events.add(20)
            events.trim(cap)
        return rows

    with ThreadPoolExecutor(1) as thread:
        producing = thread.submit(produce)
        while not producing.done():
            world.plan(dice)
            world.read(dice)
    world.added = producing.result()
    world.finish(dice)
    seen = set(world.seen)
    assert world.seen == [row for row in world.added if row in seen]
    assert world.lost + len(seen) == len(world.added) == 1_200
    if cap > 1_200:
        assert world.lost == 0
