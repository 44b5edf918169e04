"""Jobs cross between us and the reference, in both directions, and arrive as they left.

`a` and `b` are the two sides of a test; the reference on both is the control: what fails there
says nothing about us.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.kit.fleet import ROOT
from tests.interop.conftest import MakeSide, both_ways
from tests.interop.keys import Keys
from tests.interop.reference import interpreter
from tests.interop.side import Seen, Side

NAMES = ["", "email", "naïve-名前-🦙", "n" * 255, "n" * 256]
DATA: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    2**64 - 1,
    1.5,
    "ñandú",
    [],
    {"to": "a@example.org", "nested": {"list": [1, [2, {"deep": None}]]}},
    "x" * 70_000,
]
WORK: dict[str, Any] = {"concurrency": 4, "read_block_ms": 200}


def arrives(added: list[Seen], worker: Side, keys: Keys) -> None:
    """Every job is run by the worker as it was added, and once."""
    created = keys.created_at_ms()
    expected = [job._replace(created_at_ms=created[job.id]) for job in added]
    worker.work(**WORK)
    worker.wait_seen(len(added))
    keys.wait_drained()
    assert sorted(worker.seen(), key=str) == sorted(expected, key=str)
    # `add` returns its own clock's reading, which may be a moment after the envelope's.
    assert all(0 <= job.created_at_ms - created[job.id] < 1000 for job in added)


def test_each_side_is_the_one_we_mean(side: MakeSide) -> None:
    reference, ours = side("reference").about(), side("ours").about()
    assert reference["version"] == "1.3.0"
    assert Path(reference["file"]).is_relative_to(interpreter().parents[1])
    assert Path(ours["file"]).is_relative_to(ROOT / "src")


@both_ways
def test_plain_and_named_jobs_arrive_as_they_were_added(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    producer = side(a)
    added = [producer.add(name, {"name": name}) for name in NAMES]
    added += [producer.add("data", data) for data in DATA]
    assert [job.data for job in added[len(NAMES) :]] == DATA
    arrives(added, side(b), keys)


@both_ways
def test_bulk_jobs_arrive_as_they_were_added(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    producer = side(a)
    added = producer.add_bulk([{"name": name, "data": name} for name in NAMES] * 20)
    added += producer.add_bulk(
        [
            {"name": "plain", "data": 1},
            {"name": "given-id", "data": 2, "job_id": "ñ-id"},
            {"name": "later", "data": 3, "delay_ms": 200},
            {"name": "careful", "data": 4, "attempts": 3, "backoff": 50},
        ]
    )
    assert len({job.id for job in added}) == len(added)
    arrives(added, side(b), keys)


@both_ways
def test_delayed_jobs_are_promoted_by_the_other_side(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    producer = side(a)
    added = [producer.add(name, name, delay_ms=100 + 10 * n) for n, name in enumerate(NAMES)]
    added.append(producer.add("known", 1, delay_ms=150, job_id="known-id"))
    assert keys.client.zcard(keys.delayed) == len(added)
    arrives(added, side(b), keys)


@both_ways
def test_an_id_given_twice_by_one_producer_is_one_job(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    producer = side(a)
    first = producer.add_unique("once", 1, job_id="the-one")
    second = producer.add_unique("once", 2, job_id="the-one")
    assert first.id == second.id == "the-one"
    arrives([first], side(b), keys)


@both_ways
def test_a_delayed_id_added_by_both_sides_is_one_job(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    first = side(a).add("once", "first", delay_ms=400, job_id="the-one")
    other = side(b)
    other.add_unique("once", "second", delay_ms=400, job_id="the-one")
    assert keys.client.zcard(keys.delayed) == 1
    arrives([first], other, keys)


@both_ways
def test_a_delayed_job_is_cancelled_by_the_other_side(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    here, there = side(a), side(b)
    here.add("later", 1, delay_ms=60_000, job_id="stays")
    here.add("later", 2, delay_ms=60_000, job_id="goes")
    assert there.cancel_delayed("goes") is True
    assert there.cancel_delayed("goes") is False
    assert here.cancel_delayed("goes") is False
    assert there.cancel_delayed("unknown") is False
    assert list(keys.created_at_ms()) == ["stays"]
    there.add("later", 3, delay_ms=60_000, job_id="goes")
    assert sorted(keys.created_at_ms()) == ["goes", "stays"], "a cancelled id is free again"


@both_ways
@pytest.mark.parametrize(
    "backoff",
    [
        20,
        {"kind": "fixed", "delay_ms": 20, "jitter_ms": 0},
        {"curve": "fixed", "delay_ms": 20},
        {"curve": "exponential", "initial_ms": 10, "multiplier": 1.5, "max_ms": 100},
    ],
    ids=["number", "dict", "fixed", "exponential"],
)
def test_a_job_keeps_its_own_retry_rules(
    side: MakeSide, keys: Keys, a: str, b: str, backoff: Any
) -> None:
    """Three attempts of its own against 25 of the worker; the last one is buried."""
    job = side(a).add("flaky", {"n": 1}, attempts=3, backoff=backoff)
    worker = side(b)
    worker.work(fail_below=99, **WORK)
    keys.wait_dead(1)
    assert [(run.id, run.name, run.data, run.attempt) for run in worker.seen()] == [
        (job.id, "flaky", {"n": 1}, attempt) for attempt in range(3)
    ]
    assert len({run.created_at_ms for run in worker.seen()}) == 1
    assert worker.peek_dlq()[0]["reason"] == "retries_exhausted"


@both_ways
def test_a_job_that_failed_here_is_retried_there(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    first, then = side(a), side(b)
    job = first.add("flaky", [1], attempts=3, backoff=1500)
    first.work(fail_below=99, **WORK)
    keys.wait_delayed(1)
    first.stop()
    then.work(**WORK)
    (run,) = then.wait_seen(1)
    assert (run.id, run.name, run.data, run.attempt) == (job.id, "flaky", [1], 1)
    keys.wait_drained()
    assert keys.client.xlen(keys.dlq) == 0


@both_ways
@pytest.mark.parametrize("reason", ["unrecoverable", "retries_exhausted"])
def test_a_job_buried_here_is_peeked_and_replayed_there(
    side: MakeSide, keys: Keys, a: str, b: str, reason: str
) -> None:
    here, there = side(a), side(b)
    job = here.add("名前", {"n": 1}, attempts=2, backoff=20)
    if reason == "unrecoverable":
        here.work(unrecoverable=True, **WORK)
    else:
        here.work(fail_below=99, **WORK)
    keys.wait_dead(1)
    (run, *_) = here.seen()
    ((dlq_id, fields),) = keys.client.xrange(keys.dlq)

    shown = {
        "dlq_id": dlq_id.decode(),
        "source_id": fields[b"source_id"].decode(),
        "reason": reason,
        "detail": None,
        "payload": fields[b"d"],
        "name": "名前",
    }
    for looker in (here, there):
        (entry,) = looker.peek_dlq()
        assert {name: entry[name] for name in shown} == shown
    assert list(fields)[:4] == [b"d", b"n", b"source_id", b"reason"]
    if here.is_ours:
        carries_why_it_died(fields, job, runs=1 if reason == "unrecoverable" else 2)

    here.stop()
    assert there.replay_dlq() == 1
    assert keys.client.xlen(keys.dlq) == 0
    there.work(**WORK)
    (again,) = there.wait_seen(1)
    assert again == run._replace(attempt=0)
    keys.wait_drained()


def carries_why_it_died(fields: dict[bytes, bytes], job: Seen, runs: int) -> None:
    """What we write beside the reference's fields."""
    assert fields[b"job_id"].decode() == job.id
    assert int(fields[b"attempt"]) == runs
    assert fields[b"error_type"].decode().rpartition(".")[2] == (
        "UnrecoverableError" if fields[b"reason"] == b"unrecoverable" else "RuntimeError"
    )
    assert b"as ordered" in fields[b"error"]
    assert int(fields[b"failed_at_ms"]) > job.created_at_ms - 1000


@both_ways
def test_a_job_replayed_by_either_side_keeps_its_retry_rules(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    here, there = side(a), side(b)
    job = here.add("doomed", 1, attempts=1)
    here.work(fail_below=99, **WORK)
    keys.wait_dead(1)
    here.stop()
    assert there.replay_dlq(limit=1) == 1
    there.work(fail_below=99, **WORK)
    keys.wait_dead(1)
    assert [(run.id, run.attempt) for run in there.seen()] == [(job.id, 0)]
