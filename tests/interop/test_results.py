"""Results cross: what the workers of one side kept is read, and waited for, by the other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interop.conftest import MakeSide, both_ways
from tests.interop.keys import Keys

VALUES: list[Any] = [
    True,
    False,
    0,
    -(2**63),
    2**64 - 1,
    1.5,
    "",
    "ñandú",
    b"\x00\xff",
    [],
    {"nested": {"list": [1, [2, {"deep": None}]]}},
    "x" * 70_000,
]
WORK: dict[str, Any] = {"concurrency": 4, "read_block_ms": 200, "store_results": True}


@both_ways
def test_results_are_read_by_the_other_side(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    reader, worker = side(a), side(b)
    jobs = [reader.add("echo", value) for value in VALUES]
    worker.work(echo=True, **WORK)
    worker.wait_seen(len(jobs))
    keys.wait_drained()
    assert [reader.get_job_result(job.id) for job in jobs] == VALUES
    ids = [job.id for job in jobs]
    assert reader.get_job_result_bulk([*ids, "unknown"]) == [*VALUES, None]
    assert reader.get_job_result("unknown") is None


@both_ways
def test_results_are_waited_for_by_the_other_side(side: MakeSide, a: str, b: str) -> None:
    waits, worker = side(a), side(b)
    worker.work(echo=True, **WORK)
    for value in VALUES:
        job = waits.add("echo", value)
        assert waits.wait_for_result(job, timeout=10, poll_interval=0.1) == value


@both_ways
def test_nothing_returned_is_nothing_read(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    """Ours keeps one byte for it, so that who waits is told; the reference keeps nothing."""
    reader, worker = side(a), side(b)
    job = reader.add("silent", 1)
    worker.work(**WORK)
    worker.wait_seen(1)
    keys.wait_drained()
    kept = keys.client.get(keys.stream.removesuffix("stream") + f"result:{job.id}")
    assert kept == (b"\xc0" if worker.is_ours else None)
    assert reader.get_job_result(job.id) is None
    assert reader.get_job_result_bulk([job.id]) == [None]


def test_a_job_that_the_reference_buried_is_told_to_our_waiter(side: MakeSide) -> None:
    ours, reference = side("ours"), side("reference")
    reference.work(fail_below=99, **WORK)
    job = ours.add("doomed", 1, attempts=2, backoff=20)
    with pytest.raises(RuntimeError) as told:
        ours.wait_for_result(job, timeout=10, poll_interval=10)
    for part in ("JobFailedError", "2 runs", "retries_exhausted", "attempt 1 fails, as ordered"):
        assert part in str(told.value)
