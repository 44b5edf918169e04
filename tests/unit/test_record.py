"""A Recorder counts in plain numbers; snapshots of several processes are added up."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from chasquimq import happening as it
from chasquimq.health import PULSE_S, Connection, Health
from chasquimq.job import Reason
from chasquimq.observe.metrics import MAX_NAMES, OTHER, JobOutcome, MetricsSink, listening
from chasquimq.observe.record import (
    COUNTS,
    HANDLER_US,
    WIDEST,
    Recorder,
    Runs,
    Snapshot,
    Tally,
    Totals,
    counted,
    merged,
)

RUNNING = Health(state="running")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(*happenings: it.Happening) -> Tally:
    recorder = Recorder("q")
    hear = listening(recorder)
    for happening in happenings:
        hear(happening)
    return recorder.snapshot().queues["q"]


def run(name: str, kind: str = "ok", took_us: int = 50) -> JobOutcome:
    return JobOutcome(kind, 1, took_us, name)  # type: ignore[arg-type]


# -- what is counted -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("happening", "counts"),
    [
        (it.Ticked(3, 2, 7), {"promoted": 3}),
        (it.Read(5, 2), {"read": 5, "reclaimed": 2}),
        (it.Fired("k@1", "n", "k", 5), {"fired": 1}),
        (it.PutAside("k", "no hash"), {"put_aside": 1}),
        (it.LeasesLost(4), {"leases_lost": 4}),
        (it.GivenBack(5), {"given_back": 5}),
        (it.Swept(1, 2), {"ghosts": 1, "consumers": 2}),
        (it.EventsDropped(6), {"events_dropped": 6}),
        (it.CameTooLate(7), {"came_too_late": 7}),
        (it.Refused(8), {"refused": 8}),
        (it.GroupRecreated(), {"groups_recreated": 1}),
    ],
)
def test_what_happens_is_counted_and_the_rest_stays_at_zero(
    happening: it.Happening, counts: dict[str, int]
) -> None:
    assert told(happening, happening).counts == {
        **dict.fromkeys(COUNTS, 0),
        **{name: 2 * count for name, count in counts.items()},
    }


def test_a_recorder_hears_everything_there_is_to_hear() -> None:
    ours = {name for name in vars(Recorder) if not name.startswith("_")}
    assert {name for name in vars(MetricsSink) if not name.startswith("_")} <= ours


def test_runs_are_counted_by_how_they_ended_and_how_long_they_took() -> None:
    runs = told(
        it.Completed("1", "a", 1, 100),
        it.Completed("2", "a", 1, 101),
        it.Failed("3", "a", 1, 700_000_000, "no"),
        it.Failed("4", "a", 1, 3, "late", True),
        it.RetryScheduled("3", "a", 2, 250),
        it.Buried("4", "a", 1, Reason.RETRIES_EXHAUSTED),
        it.Added("5", "a"),
        it.Added("6", "a", True),
    ).names["a"]
    assert (runs.completed, runs.failed, runs.timed_out, runs.retried) == (2, 1, 1, 1)
    assert (runs.added, runs.delayed) == (1, 1)
    assert runs.dead == {**dict.fromkeys(map(str, Reason), 0), "retries_exhausted": 1}
    beyond = [0] * len(HANDLER_US)
    assert runs.took_us.counts == [2, 1, *beyond[2:], 1]  # a bound belongs to what is below it
    assert runs.took_us.total == 100 + 101 + 700_000_000 + 3


def test_what_a_producer_adds_makes_no_series_of_runs() -> None:
    assert not told(it.Added("5", "a")).names["a"].worked
    assert told(it.Completed("5", "a", 1, 1)).names["a"].worked
    assert told(it.Buried("", "a", 0, Reason.MALFORMED)).names["a"].worked


def test_who_leads_is_known_and_what_a_leader_saw_goes_with_its_lock() -> None:
    ours = [it.LockTurned("promoter", True), it.LockTurned("scheduler", True)]
    ticks = [it.Ticked(0, 9, 1_500), it.SpecsTicked(0, 4, 70)]
    tally = told(*ours, *ticks)
    assert (tally.delayed, tally.promoter_lag_ms, tally.specs) == (9, 1_500, 4)
    assert (tally.held, tally.scheduler_lag_ms) == ({"promoter": 1, "scheduler": 1}, 70)
    tally = told(*ours, *ticks, it.LockTurned("promoter", False))
    assert (tally.delayed, tally.promoter_lag_ms) == (None, None)  # another says it now
    assert (tally.specs, tally.held) == (4, {"promoter": 0, "scheduler": 1})
    assert (tally.acquired, tally.lost) == (
        {"promoter": 1, "scheduler": 1},
        {"promoter": 1, "scheduler": 0},
    )


def test_connections_are_counted_from_zero_once_they_are_known() -> None:
    health = Health(state="running", connections={"reader": Connection(True)})
    assert told(it.Pulsed("c", health)).reconnects == {"reader": 0}
    assert told(it.Pulsed("c", health), it.Reconnected("reader")).reconnects == {"reader": 1}


# -- names -----------------------------------------------------------------------------------------


def test_names_are_bounded_and_what_comes_later_is_counted_together() -> None:
    recorder = Recorder("q")
    for number in range(MAX_NAMES + 50):
        recorder.job_outcome(run(f"name-{number}"))
        recorder.job_outcome(run("name-0"))
    names = recorder.snapshot().queues["q"].names
    assert len(names) == MAX_NAMES + 1
    assert names[OTHER].completed == 50
    assert names["name-0"].completed == MAX_NAMES + 51


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("", ""),
        ("welcome", "welcome"),
        ("größe", "größe"),
        ("a\nb", r"a\nb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("\udcff", r"\udcff"),
        ("x" * 500, "x" * (WIDEST - 1) + "…"),
    ],
)
def test_a_name_becomes_a_label_that_can_be_shown(name: str, label: str) -> None:
    recorder = Recorder("q")
    recorder.job_outcome(run(name))
    recorder.job_outcome(run(name))
    [(found, runs)] = recorder.snapshot().queues["q"].names.items()
    assert (found, runs.completed) == (label, 2)
    found.encode()


def test_names_that_differ_only_where_they_are_cut_share_a_row_and_fill_no_memory() -> None:
    recorder = Recorder("q")
    for number in range(1_000):
        recorder.job_outcome(run("x" * WIDEST + str(number)))
    [runs] = recorder.snapshot().queues["q"].names.values()
    assert runs.completed == 1_000
    assert len(recorder._names) == 1


def test_twenty_thousand_names_take_no_more_than_half_of_them() -> None:
    recorder = Recorder("q")

    def flood(start: int) -> int:
        for number in range(start, start + 10_000):
            recorder.job_outcome(run(f"name-{number}\n\x1b"))
        recorder.snapshot()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first, second = flood(0), flood(10_000)
    finally:
        tracemalloc.stop()
    assert len(recorder.snapshot().queues["q"].names) == MAX_NAMES + 1
    assert second - first < 64 * 1024


# -- workers ---------------------------------------------------------------------------------------


def test_a_worker_is_as_its_last_pulse_said_until_it_ends() -> None:
    clock = Clock()
    recorder = Recorder("q", clock)
    recorder.pulse("c-1", RUNNING)
    recorder.pulse("c-2", RUNNING)
    clock.now += 0.5
    busy = Health(state="running", running=3)
    recorder.pulse("c-1", busy)
    seen = recorder.snapshot().workers
    assert [(one.queue, one.worker, one.age_s, one.health) for one in seen] == [
        ("q", "c-1", 0.0, busy),
        ("q", "c-2", 0.5, RUNNING),
    ]
    recorder.pulse("c-1", Health(state="stopped"))
    recorder.pulse("c-2", Health(state="failed"))
    snapshot = recorder.snapshot()
    assert (snapshot.workers, snapshot.queues["q"].worked) == ([], True)


def test_a_silent_worker_is_a_blocked_one() -> None:
    clock = Clock()
    recorder = Recorder("q", clock)
    recorder.pulse("c", Health(state="running", loop_lag_s=0.2))
    assert recorder.snapshot().workers[0].loop_lag_s == 0.2
    clock.now += PULSE_S + 3.5
    [seen] = recorder.snapshot().workers
    assert seen.loop_lag_s == pytest.approx(3.5)
    assert (seen.health.healthy, seen.healthy) == (True, False)


# -- snapshots -------------------------------------------------------------------------------------


def filled(queue: str = "q", names: Sequence[str] = ("a",)) -> Snapshot:
    recorder = Recorder(queue, Clock())
    hear = listening(recorder)
    for name in names:
        hear(it.Completed("1", name, 1, 100))
        hear(it.Buried("1", name, 1, "malformed"))
    hear(it.LockTurned("promoter", True))
    hear(it.Ticked(2, 9, 30))
    hear(it.Read(3))
    hear(it.Fired("k@1", "n", "k", 5))
    hear(it.RetryScheduled("1", next(iter(names)), 2, 250))
    hear(it.Pulsed("c", Health(state="running", connections={"reader": Connection(True)})))
    return recorder.snapshot()


def test_a_snapshot_does_not_change_any_more() -> None:
    recorder = Recorder("q")
    recorder.job_outcome(run("a"))
    recorder.dlq_routed(it.Buried("1", "a", 1, "malformed"))  # type: ignore[arg-type]
    before = recorder.snapshot()
    frozen = msgspec.json.encode(before)
    hear = listening(recorder)
    for happening in (
        it.Completed("1", "a", 1, 1),
        it.Completed("1", "b", 1, 1),
        it.Buried("1", "a", 1, "malformed"),
        it.Read(1),
        it.Reconnected("reader"),
        it.LockTurned("promoter", True),
        it.Ticked(1, 1, 1),
        it.RetryScheduled("1", "a", 2, 1),
        it.Fired("k@1", "n", "k", 5),
        it.Pulsed("c", RUNNING),
    ):
        hear(happening)
    assert msgspec.json.encode(before) == frozen


@pytest.mark.parametrize(
    "there_and_back",
    [
        lambda whole: msgspec.json.decode(msgspec.json.encode(whole), type=Snapshot),
        lambda whole: msgspec.convert(msgspec.to_builtins(whole), Snapshot),
    ],
    ids=["text", "values"],
)
def test_a_snapshot_travels_as_json(there_and_back: Callable[[Snapshot], Snapshot]) -> None:
    assert there_and_back(filled()) == filled()


def test_snapshots_of_processes_are_added_up_by_queue() -> None:
    whole = merged([filled("q"), filled("q", ["a", "b"]), filled("other")])
    assert set(whole.queues) == {"q", "other"}
    tally = whole.queues["q"]
    assert {name: runs.completed for name, runs in tally.names.items()} == {"a": 2, "b": 1}
    assert tally.names["a"].dead["malformed"] == 2
    assert (tally.counts["promoted"], tally.counts["read"]) == (4, 6)
    assert (tally.held, tally.acquired) == ({"promoter": 2}, {"promoter": 2})
    assert (tally.delayed, tally.promoter_lag_ms) == (9, 30)  # the same set, seen twice
    assert (sum(tally.batch.counts), tally.batch.total) == (2, 6)
    assert (sum(tally.backoff_ms.counts), sum(tally.late_ms.counts)) == (2, 2)
    assert len(whole.workers) == 3


def test_merging_leaves_its_parts_alone() -> None:
    part = filled()
    merged([part, filled()])
    assert part == filled()


def test_names_are_bounded_over_all_processes_and_stay_the_same_from_time_to_time() -> None:
    totals = Totals(lambda: 0.0)
    first = filled("q", [f"one-{n}" for n in range(MAX_NAMES)])
    later = filled("q", [f"two-{n}" for n in range(MAX_NAMES)])
    assert OTHER not in totals.page(lambda: [("first", first)]).queues["q"].names
    assert len(merged([first, later]).queues["q"].names) == MAX_NAMES + 1
    tally = totals.page(lambda: [("later", later), ("first", first)]).queues["q"]
    assert len(tally.names) == MAX_NAMES + 1
    assert tally.names[OTHER].completed == MAX_NAMES
    assert all(tally.names[f"one-{n}"].completed == 1 for n in range(MAX_NAMES))


def test_of_a_process_that_ended_its_counters_remain() -> None:
    living, ended = filled(), counted(filled())
    assert (ended.workers, ended.queues["q"].held, ended.queues["q"].delayed) == ([], {}, None)
    whole = merged([living, ended])
    assert whole.queues["q"].names["a"].completed == 2
    assert whole.queues["q"].counts["read"] == 6
    assert whole.queues["q"].held == {"promoter": 1}
    assert len(whole.workers) == 1


ID, NAME, ONE, US = some.just(""), some.sampled_from("abc"), some.just(1), some.integers(0, 10**9)
happenings = some.one_of(
    some.builds(it.Completed, ID, NAME, ONE, US),
    some.builds(it.Failed, ID, NAME, ONE, US, some.just("no"), some.booleans()),
    some.builds(it.Buried, ID, NAME, ONE, some.sampled_from(list(Reason))),
    some.builds(it.RetryScheduled, ID, NAME, ONE, some.integers(0, 10**7)),
    some.builds(it.Read, some.integers(0, 500), some.integers(0, 5)),
    some.builds(it.LeasesLost, some.integers(0, 5)),
    some.builds(it.Reconnected, some.sampled_from(["reader", "lease"])),
)


@given(some.lists(happenings), some.lists(happenings))
def test_two_that_count_apart_count_what_one_would(one: list[Any], other: list[Any]) -> None:
    def snapshot(*what: it.Happening) -> Snapshot:
        return Snapshot({"q": told(*what)}, [])

    assert merged([snapshot(*one), snapshot(*other)]) == merged([snapshot(*one, *other)])


def test_a_thread_that_looks_while_another_counts_sees_counters_that_only_grow() -> None:
    recorder = Recorder("q")
    done = threading.Event()

    def count() -> None:
        for number in range(20_000):
            recorder.job_outcome(run(f"n-{number % 300}", ("ok", "err", "timeout")[number % 3]))
        done.set()

    counting = threading.Thread(target=count)
    counting.start()
    before = (0, 0, 0)
    while not done.is_set():
        rows = recorder.snapshot().queues["q"].names.values()
        now = tuple(sum(count(row) for row in rows) for count in (_completed, _failed, _took))
        assert all(a <= b for a, b in zip(before, now, strict=True))
        before = now  # type: ignore[assignment]
    counting.join()
    rows = recorder.snapshot().queues["q"].names.values()
    assert sum(map(_took, rows)) == 20_000


def _completed(runs: Runs) -> int:
    return runs.completed


def _failed(runs: Runs) -> int:
    return runs.failed


def _took(runs: Runs) -> int:
    return sum(runs.took_us.counts)
