"""A paused queue in a mixed fleet: our workers wait, the reference's does not know the key."""

from __future__ import annotations

from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.interop.test_both_ways import WORK


def test_a_reference_worker_works_on_in_a_pause_and_ours_does_not(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    paused = keys.stream.removesuffix("stream") + "paused"
    keys.client.set(paused, "")  # any value, as a later reference may write it
    ours.work(**WORK)
    added = {ours.add("one", 1).id, reference.add("two", 2).id}
    reference.work(**WORK)
    assert {run.id for run in reference.wait_seen(2)} == added
    keys.wait_drained()
    reference.stop()  # one that is only closed reads on for a while
    left = ours.add("three", 3).id
    assert ours.seen() == []
    keys.client.delete(paused)
    assert [run.id for run in ours.wait_seen(1)] == [left]
