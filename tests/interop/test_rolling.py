"""A deploy: workers and producers of an earlier version and of this one share a queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide
from tests.interop.earlier import COMMIT, LACKING
from tests.interop.keys import Keys

pytestmark = pytest.mark.expected_skip(LACKING)

VERSIONS = ("earlier", "ours")
TICKS = 3
WORK: dict[str, Any] = {"claim_min_idle_ms": 1_000, "max_attempts": 5, "concurrency": 4}


def test_both_versions_are_what_they_should_be(side: MakeSide) -> None:
    earlier, ours = (side(name).about()["file"] for name in VERSIONS)
    assert COMMIT in earlier
    assert COMMIT not in ours


@pytest.mark.parametrize("killed", VERSIONS)
def test_what_one_version_leaves_the_other_ends(side: MakeSide, keys: Keys, killed: str) -> None:
    """Jobs of all kinds, of both; each fails once. One version's worker is killed at its work."""
    producers = [side(name) for name in VERSIONS]
    survivor = next(name for name in VERSIONS if name != killed)
    ids: list[str] = []
    for version, producer in zip(VERSIONS, producers, strict=True):
        for number in range(20):
            ids.append(producer.add("now", number).id)
            ids.append(producer.add("later", number, delay_ms=200).id)
            ids.append(producer.add("own", number, job_id=f"{version}-{number}").id)
        often = {"kind": "every", "interval_ms": 100}
        producer.upsert("tick", 1, repeat=often, limit=TICKS, key=version)
    victim, other = side(killed), side(survivor)
    victim.work(fail_below=1, **WORK)
    other.work(fail_below=1, **WORK)
    victim.wait_seen(20)
    victim.stop()  # kill -9

    eventually(lambda: {*ids} <= {*keys.completed()}, 30, or_say=other.seen)
    eventually(lambda: len({one for one in keys.completed() if "@" in one}) == 2 * TICKS)
    keys.wait_drained()
    assert keys.client.xlen(keys.dlq) == 0
    assert other.seen()
