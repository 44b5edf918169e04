"""Unique jobs in a mixed fleet: what the reference respects, and what it leaves."""

from __future__ import annotations

from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys
from tests.interop.test_both_ways import WORK

HOUR_MS = 3_600_000
UNTIL_DONE = {"unique": "until_done", "unique_for": HOUR_MS}


def test_the_reference_runs_our_unique_jobs_but_leaves_the_id_taken(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    ours.add("named", {"n": 1}, job_id="a", **UNTIL_DONE)
    ours.add("", {"n": 2}, job_id="b", **UNTIL_DONE)
    ours.add("later", {"n": 3}, job_id="c", delay_ms=50, **UNTIL_DONE)
    reference.work(fail_below=1, **WORK)
    seen = {(run.id, run.name, run.data["n"], run.attempt) for run in reference.wait_seen(6)}
    jobs = [("a", "named", 1), ("b", "", 2), ("c", "later", 3)]
    assert seen == {(*job, attempt) for job in jobs for attempt in (0, 1)}
    keys.wait_drained()
    reference.rest()
    for job_id in "abc":
        ours.add("again", 0, job_id=job_id, **UNTIL_DONE)
    assert keys.client.xlen(keys.stream) == 0  # duplicates, until the limit


def test_a_delayed_add_of_the_reference_respects_our_period_and_we_its_id(
    side: MakeSide, keys: Keys
) -> None:
    ours, reference = side("ours"), side("reference")
    ours.add("first", 1, job_id="a", unique_for=HOUR_MS)
    reference.add("second", 2, job_id="a", delay_ms=HOUR_MS)
    assert keys.client.zcard(keys.delayed) == 0
    reference.add("first", 1, job_id="b", delay_ms=HOUR_MS)
    ours.add("second", 2, job_id="b", unique_for=HOUR_MS)
    ours.add("third", 3, job_id="b", delay_ms=5, unique_for=HOUR_MS)
    assert (keys.client.xlen(keys.stream), keys.client.zcard(keys.delayed)) == (1, 1)
