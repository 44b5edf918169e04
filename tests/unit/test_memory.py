"""The in-memory sink: every call in order, what they add up to, and how that reads."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import ConfigError
from chasquimq.observe.memory import InMemorySink, JobRollup, WorkerRollup
from chasquimq.observe.metrics import (
    OTHER,
    DlqRouted,
    JobOutcome,
    PromoterTick,
    ReaderBatch,
    RetryScheduled,
    SchedulerTick,
    SpecFired,
)


def test_a_flood_of_names_stays_bounded() -> None:
    sink = InMemorySink(limit=10)
    for number in range(5_000):
        sink.job_outcome(JobOutcome("ok", 1, number, f"name-{number}"))
        sink.retry_scheduled(RetryScheduled(2, 1, f"retry-{number}"))
        sink.dlq_routed(DlqRouted("malformed", 1, f"dead-{number}"))
    rollup = sink.rollup()
    assert len(rollup.names) == 201
    assert rollup.totals.completed == rollup.totals.retried == 5_000
    assert sum(row.completed for row in rollup.names.values()) == 5_000
    assert sum(row.retried for row in rollup.names.values()) == 5_000
    assert rollup.names[OTHER].dead["malformed"] > 4_900
    assert len(str(rollup).splitlines()) < 250


def test_a_flood_of_attempts_stays_bounded() -> None:
    sink = InMemorySink()
    for attempt in range(1, 5_001):
        sink.job_outcome(JobOutcome("err", attempt, 1, ""))
    attempts = sink.rollup().totals.attempts
    assert len(attempts) == 100
    assert attempts[99] == 1
    assert attempts[100] == 4_901


def test_the_oldest_calls_are_dropped_and_counted() -> None:
    sink = InMemorySink(limit=3)
    for number in range(5):
        sink.given_back(number)
    assert sink.heard("given_back") == [2, 3, 4]
    assert sink.dropped == 2
    assert sink.rollup().worker.given_back == 10  # what was dropped still counts


def test_clear_forgets_everything() -> None:
    sink = InMemorySink(limit=1)
    sink.job_outcome(JobOutcome("ok", 1, 2, "n"))
    sink.swept(1, 2)
    assert sink.dropped
    sink.clear()
    fresh = InMemorySink()
    assert (sink.calls, sink.dropped, sink.rollup()) == ([], 0, fresh.rollup())


def test_nothing_happened_yet() -> None:
    nothing = JobRollup(0, 0, 0, 0, {}, {}, None, None, None, None)
    assert InMemorySink().rollup() == (nothing, {}, WorkerRollup())


def test_a_rollup_does_not_change_any_more() -> None:
    sink = InMemorySink()
    sink.dlq_routed(DlqRouted("malformed", 0, "n"))
    rollup = sink.rollup()
    sink.dlq_routed(DlqRouted("malformed", 0, "n"))
    assert rollup.totals.dead == rollup.names["n"].dead == {"malformed": 1}


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError):
        InMemorySink(limit=0)


HAPPENINGS = st.one_of(
    st.builds(JobOutcome, st.sampled_from(["ok", "err", "timeout"]), st.integers(1, 150),
              st.integers(0, 10**7), st.sampled_from("abc")),
    st.builds(RetryScheduled, st.integers(1, 5), st.integers(0, 99), st.sampled_from("abc")),
    st.builds(DlqRouted, st.sampled_from(["malformed", "unrecoverable"]), st.integers(0, 5),
              st.sampled_from("abcd")),
    st.builds(ReaderBatch, st.integers(1, 64), st.integers(0, 3)),
    st.builds(PromoterTick, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.builds(SchedulerTick, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.builds(SpecFired, st.sampled_from("kl"), st.just(""), st.integers(0, 9)),
)  # fmt: skip
CALLED = {JobOutcome: "job_outcome", RetryScheduled: "retry_scheduled", DlqRouted: "dlq_routed",
          ReaderBatch: "reader_batch", PromoterTick: "promoter_tick",
          SchedulerTick: "scheduler_tick", SpecFired: "spec_fired"}  # fmt: skip


def naive(values: list[Any], name: str | None) -> JobRollup:
    """The same by reading the definitions aloud, over everything that was ever told."""
    mine = [value for value in values if name is None or getattr(value, "name", None) == name]
    runs = [value for value in mine if isinstance(value, JobOutcome)]
    durations = [run.handler_duration_us for run in runs]

    def percentile(share: float) -> int | None:
        enough = [
            value
            for value in durations
            if sum(other <= value for other in durations) >= share * len(durations)
        ]
        return min(enough, default=None)

    return JobRollup(
        completed=sum(run.kind == "ok" for run in runs),
        failed=sum(run.kind == "err" for run in runs),
        timed_out=sum(run.kind == "timeout" for run in runs),
        retried=sum(isinstance(value, RetryScheduled) for value in mine),
        dead=Counter(value.reason for value in mine if isinstance(value, DlqRouted)),
        attempts=Counter(min(run.attempt, 100) for run in runs),
        p50_us=percentile(0.50),
        p95_us=percentile(0.95),
        p99_us=percentile(0.99),
        max_us=max(durations, default=None),
    )


@given(values=st.lists(HAPPENINGS, max_size=120), limit=st.integers(1, 150))
def test_a_rollup_is_what_the_calls_add_up_to(values: list[Any], limit: int) -> None:
    sink = InMemorySink(limit)
    for value in values:
        getattr(sink, CALLED[type(value)])(value)
    rollup = sink.rollup()
    assert [call.value for call in sink.calls] == values[-limit:]
    assert sink.dropped == max(len(values) - limit, 0)
    assert rollup.totals == naive(values, None)
    ran = [value for value in values if not isinstance(value, SpecFired)]  # a fire is no run
    names = {value.name for value in ran if hasattr(value, "name")}
    assert rollup.names == {name: naive(values, name) for name in names}
    batches = [value for value in values if isinstance(value, ReaderBatch)]
    assert rollup.worker == WorkerRollup(
        promoted=sum(v.promoted for v in values if isinstance(v, PromoterTick)),
        fired=sum(isinstance(value, SpecFired) for value in values),
        batches=len(batches),
        entries=sum(batch.size for batch in batches),
        reclaimed=sum(batch.reclaimed for batch in batches),
    )


@pytest.mark.parametrize("count", [1, 2, 998, 999, 1_000, 1_500])
def test_percentiles_are_of_the_latest_thousand_and_the_maximum_of_all(count: int) -> None:
    took = [10**6, *(number * 7_919 % 1_009 for number in range(count))]
    sink = InMemorySink()
    for took_us in took:
        sink.job_outcome(JobOutcome("ok", 1, took_us, "n"))
    latest = sorted(took[-1_000:])
    rollup = sink.rollup().totals
    assert rollup.max_us == 10**6
    assert rollup.p50_us == latest[(len(latest) + 1) // 2 - 1]
    assert rollup.runs == count + 1


def test_what_the_worker_did_adds_up() -> None:
    sink = InMemorySink()
    for count in (2, 3):
        sink.leases_lost(count)
        sink.given_back(count + 1)
        sink.swept(count + 2, count + 3)
        sink.events_dropped(count + 4)
        sink.came_too_late(count + 5)
        sink.refused(count + 6)
        sink.reconnected("reader")
        sink.spec_put_aside(f"key-{count}", "no hash")
    assert sink.heard("spec_put_aside") == [("key-2", "no hash"), ("key-3", "no hash")]
    assert sink.rollup().worker == WorkerRollup(
        put_aside=2,
        leases_lost=5,
        given_back=7,
        ghosts=9,
        consumers=11,
        events_dropped=13,
        came_too_late=15,
        refused=17,
        reconnects=2,
    )


@pytest.mark.parametrize("value", [JobRollup, WorkerRollup])
def test_the_reference_page_names_every_count(value: Any) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    section = page.partition("\n## InMemorySink")[2]
    assert set(value._fields) <= set(re.findall(r"`(\w+)`", section))


# -- the text --------------------------------------------------------------------------------------

TABLE = """\
name       completed  failed  timed out  retried  dead  p50 us  p95 us  p99 us  max us  by attempt
(no name)          0       0          0        0     1       -       -       -       -
charge             1       1          1        2     1     200     300     300     300  1:1 2:1 3:1
mail              12       0          0        0     0      17      17      17      17  1:12
total             13       1          1        2     2      17     300     300     300  1:13 2:1 3:1

dead: unrecoverable 1, malformed 1

worker: promoted 2, fired 1, put_aside 1, batches 1, entries 14, reconnects 1"""


def test_a_rollup_reads_as_a_table() -> None:
    sink = InMemorySink()
    for _ in range(12):
        sink.job_outcome(JobOutcome("ok", 1, 17, "mail"))
    sink.job_outcome(JobOutcome("err", 1, 100, "charge"))
    sink.job_outcome(JobOutcome("timeout", 2, 300, "charge"))
    sink.job_outcome(JobOutcome("ok", 3, 200, "charge"))
    sink.retry_scheduled(RetryScheduled(2, 5, "charge"))
    sink.retry_scheduled(RetryScheduled(3, 5, "charge"))
    sink.dlq_routed(DlqRouted("unrecoverable", 1, "charge"))
    sink.dlq_routed(DlqRouted("malformed", 0, ""))
    sink.promoter_tick(PromoterTick(2, 0, 0))
    sink.scheduler_tick(SchedulerTick(1, 5, 0))
    sink.spec_fired(SpecFired("mail::every:9", "mail", 3))
    sink.spec_put_aside("charge::every:0", "no pattern that could fire")
    sink.reader_batch(ReaderBatch(14, 0))
    sink.reconnected("reader")
    assert str(sink) == str(sink.rollup()) == TABLE
    assert repr(sink) == (
        "<InMemorySink: 13 completed, 1 failed, 1 timed out, 2 retried, 2 dead; "
        "25 calls kept, 0 dropped>"
    )


def test_nothing_reads_as_a_table_too() -> None:
    head, total, _, worker = str(InMemorySink()).splitlines()
    assert head.startswith("name   completed")
    assert total.split() == ["total", *"00000", *"----"]
    assert worker == "worker: nothing"


@given(st.lists(st.text(min_size=1), max_size=20))
def test_whatever_a_job_is_called_its_row_is_one_line(names: list[str]) -> None:
    sink = InMemorySink()
    for name in ["\x1b[31m", "a\nb", "\u202e", *names]:
        sink.job_outcome(JobOutcome("ok", 1, 1, name))
    text = str(sink)
    assert len(text.splitlines()) == len(sink.rollup().names) + 4
    assert text.replace("\n", "").isprintable()
