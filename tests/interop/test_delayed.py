"""Delayed jobs that one side put in and the other looks after."""

from __future__ import annotations

from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.interop.test_both_ways import NAMES, WORK

HOUR_MS = 3_600_000


def test_the_reference_promotes_what_we_indexed_and_leaves_no_index(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    added = [ours.add(name, name, delay_ms=100 + n) for n, name in enumerate(NAMES)]
    moved = ours.add("moved", 1, delay_ms=HOUR_MS)
    assert ours.reschedule(moved.id, 150) is True
    assert len(keys.client.keys(keys.index)) == len(added) + 1
    reference.work(**WORK)
    seen = reference.wait_seen(len(added) + 1)
    assert sorted(run.id for run in seen) == sorted(job.id for job in [*added, moved])
    keys.wait_drained()
    eventually(lambda: keys.client.keys(keys.index) == [])
    assert not any(ours.cancel_delayed(job.id) or ours.run_now(job.id) for job in [*added, moved])


def test_the_reference_does_not_find_ids_that_we_minted(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    job = ours.add("later", 1, delay_ms=HOUR_MS)
    assert reference.cancel_delayed(job.id) is False
    assert ours.cancel_delayed(job.id) is True
    assert keys.client.keys(keys.index) == []


def test_we_look_after_what_the_reference_delayed(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    for job_id in ("goes", "soon", "now"):
        reference.add("名前", job_id, delay_ms=HOUR_MS, job_id=job_id)
    without = reference.add("later", 1, delay_ms=HOUR_MS)
    assert ours.cancel_delayed("goes") is True
    assert ours.reschedule("soon", 2 * HOUR_MS) is True
    assert ours.reschedule("soon", 200) is True
    assert ours.run_now("now") is True
    assert ours.run_now(without.id) is False, "it has no index"
    reference.work(**WORK)
    assert sorted((run.id, run.name, run.data) for run in reference.wait_seen(2)) == [
        ("now", "名前", "now"),
        ("soon", "名前", "soon"),
    ]
    eventually(lambda: keys.client.xlen(keys.stream) == 0)
    assert list(keys.created_at_ms()) == [without.id]
    eventually(lambda: keys.client.keys(keys.index) == [])


def test_the_reference_cancels_what_we_moved(side: MakeSide, keys: Keys) -> None:
    ours, reference = side("ours"), side("reference")
    ours.add("later", 1, delay_ms=1_000, job_id="mine")
    assert ours.reschedule("mine", HOUR_MS) is True
    assert reference.cancel_delayed("mine") is True
    assert ours.cancel_delayed("mine") is False
    assert keys.client.zcard(keys.delayed) == 0
