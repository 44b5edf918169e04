"""Which job names have rows of their own: bounded, the handlers' first, then those used last."""

from __future__ import annotations

import random

import pytest

from chasquimq import InMemorySink
from chasquimq.health import Health
from chasquimq.observe.metrics import MAX_NAMES, OTHER, JobOutcome
from chasquimq.observe.record import BURST, REPLACE_S, STALE_S, Recorder, Rows, Snapshot, Totals

RUNNING = Health(state="running")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def run(recorder: Recorder | InMemorySink, *names: str) -> None:
    for name in names:
        recorder.job_outcome(JobOutcome("ok", 1, 5, name))


def completed(snapshot: Snapshot) -> dict[str, int]:
    return {name: runs.completed for name, runs in snapshot.queues["q"].names.items()}


def strangers(count: int = MAX_NAMES) -> list[str]:
    return [f"stranger-{number}" for number in range(count)]


def rest(recorder: Recorder, clock: Clock, seconds: float, *used: str) -> None:
    """Time passes, in which the worker says each second how it is, and runs these jobs."""
    for _ in range(int(seconds)):
        clock.now += 1
        run(recorder, *used)
        recorder.pulse("c", RUNNING)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_names_of_handlers_have_rows_however_many_others_come_first(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    recorder.handler_names(["welcome", "in\nvoice"])
    run(recorder, *strangers(), "welcome", "welcome", "in\nvoice")
    names = completed(recorder.snapshot())
    assert (names["welcome"], names["in\\nvoice"]) == (2, 1)
    assert len(names) == MAX_NAMES + 1
    assert sum(names.values()) == MAX_NAMES + 3


def test_names_of_handlers_take_rows_from_others(clock: Clock) -> None:
    """A recorder that a producer shares has counted before the worker begins."""
    recorder = Recorder("q", clock)
    run(recorder, *strangers(), "stranger-0")
    recorder.handler_names(["welcome"])
    run(recorder, "welcome")
    names = completed(recorder.snapshot())
    assert (names["welcome"], names["stranger-0"]) == (1, 2)
    assert len(names) == MAX_NAMES + 1
    assert sum(names.values()) == MAX_NAMES + 2


def test_more_handlers_than_rows_have_a_row_each(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    ours = [f"ours-{number}" for number in range(MAX_NAMES + 50)]
    recorder.handler_names(ours)
    run(recorder, *strangers(), *ours)
    names = completed(recorder.snapshot())
    assert names == {OTHER: MAX_NAMES, **dict.fromkeys(ours, 1)}


def test_a_new_name_takes_the_row_of_one_that_is_used_no_longer(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    run(recorder, *strangers())
    used = strangers()[:-1]
    rest(recorder, clock, STALE_S + 1, *used)
    run(recorder, "newcomer", "newcomer")
    names = completed(recorder.snapshot())
    assert (names["newcomer"], "stranger-199" in names) == (2, False)
    assert names["stranger-0"] == STALE_S + 2
    run(recorder, "another")
    assert "another" not in completed(recorder.snapshot())  # all the others are in use


def test_a_row_that_was_shown_ends_and_is_not_counted_twice(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    run(recorder, *strangers())
    rest(recorder, clock, STALE_S + 1)
    assert sum(completed(recorder.snapshot()).values()) == MAX_NAMES
    run(recorder, "newcomer")
    names = completed(recorder.snapshot())
    assert (names["newcomer"], OTHER in names) == (1, False)
    assert sum(names.values()) == MAX_NAMES


def test_what_was_never_shown_is_counted_among_all_others(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    run(recorder, *strangers())
    recorder.snapshot()
    run(recorder, *strangers())
    rest(recorder, clock, STALE_S + 1)
    run(recorder, "newcomer")
    names = completed(recorder.snapshot())
    assert (names["newcomer"], names[OTHER]) == (1, 1)  # of two runs, one was shown


def test_a_name_that_comes_back_begins_at_zero(clock: Clock) -> None:
    recorder = Recorder("q", clock)
    run(recorder, *strangers(), "stranger-0", "stranger-0")
    rest(recorder, clock, STALE_S + 1, *strangers()[1:])
    recorder.snapshot()
    run(recorder, "newcomer")
    rest(recorder, clock, STALE_S + 1, *strangers()[1:])
    recorder.snapshot()
    run(recorder, "stranger-0")
    names = completed(recorder.snapshot())
    assert (names["stranger-0"], "newcomer" in names) == (1, False)


def test_names_that_all_differ_replace_few_rows(clock: Clock) -> None:
    """Each new series is work for Prometheus: names with an id in them must not make thousands."""
    recorder = Recorder("q", clock)
    seen: set[str] = set()
    minutes = 10
    for second in range(minutes * 60):
        run(recorder, *(f"order-{second}-{number}" for number in range(6)))
        rest(recorder, clock, 1)
        seen |= recorder.snapshot().queues["q"].names.keys()
        assert len(recorder.snapshot().queues["q"].names) <= MAX_NAMES + 1
    replaced = len(seen) - MAX_NAMES - 1
    assert BURST < replaced <= BURST + minutes * 60 / REPLACE_S


def test_without_a_worker_rows_are_replaced_as_well(clock: Clock) -> None:
    """Nobody says each second how it is: a producer's recorder."""
    recorder = Recorder("q", clock)
    run(recorder, *strangers())
    for _ in range(30):
        clock.now += 1
        run(recorder, *strangers()[1:], "newcomer")
    names = completed(recorder.snapshot())
    assert ("newcomer" in names, "stranger-0" in names) == (True, False)
    assert names["newcomer"] + names[OTHER] == 31  # with the one run of stranger-0


def test_other_sinks_know_the_names_of_handlers_too() -> None:
    sink = InMemorySink()
    sink.handler_names(["welcome"])
    run(sink, *strangers(), "welcome")
    rollup = sink.rollup()
    assert (rollup.names["welcome"].completed, rollup.names[OTHER].completed) == (1, 1)


# -- several recorders -----------------------------------------------------------------------------


def test_a_name_that_one_process_drops_does_not_fall(clock: Clock) -> None:
    """It would look like a restart, and all that the other process had counted like new jobs."""
    one, other, totals = Recorder("q", clock), Recorder("q", clock), Totals(clock)

    def page() -> dict[str, int]:
        return completed(totals.page(lambda: [(x, x.snapshot()) for x in (one, other)]))

    run(one, *strangers())
    run(other, "stranger-0")
    assert page()["stranger-0"] == 2
    rest(one, clock, STALE_S + 1, *strangers()[1:])
    run(one, "newcomer")
    run(other, "stranger-0")
    assert page()["stranger-0"] == 3


def test_what_a_process_counted_before_it_ended_stays(clock: Clock) -> None:
    first, totals = Recorder("q", clock), Totals(clock)
    run(first, "a", "a")
    totals.add(lambda: [(1, first.snapshot())])
    totals.forget(1)
    second = Recorder("q", clock)
    run(second, "a")
    assert completed(totals.page(lambda: [(2, second.snapshot())])) == {"a": 3}
    assert completed(totals.page(lambda: [(2, second.snapshot())])) == {"a": 3}


def test_names_of_handlers_come_first_over_all_processes(clock: Clock) -> None:
    one, other, totals = Recorder("q", clock), Recorder("q", clock), Totals(clock)
    run(one, *strangers())
    totals.page(lambda: [(1, one.snapshot())])
    other.handler_names(["welcome"])
    run(other, "welcome")
    names = completed(totals.page(lambda: [(1, one.snapshot()), (2, other.snapshot())]))
    assert (names["welcome"], len(names)) == (1, MAX_NAMES)


@pytest.mark.parametrize("seed", range(6))
def test_each_run_is_counted_in_one_series_by_whoever_adds_up_increases(seed: int) -> None:
    """As Prometheus does: a series grows, or it ends; one that comes back counts from zero."""
    dice, clock = random.Random(seed), Clock()
    totals = Totals(clock)
    recorders = {number: Recorder("q", clock) for number in range(3)}
    counted, ran, ended = 0, 0, 0
    before: dict[str, int] = {}
    serials: dict[str, int] = {}
    base = 0
    for _ in range(120):
        clock.now += dice.choice((1, 1, 5))
        base += dice.choice((0, 0, 0, 10))
        for recorder in recorders.values():
            names = [f"n-{base + dice.randrange(150)}" for _ in range(30)]
            run(recorder, *names)
            ran += len(names)
            recorder.pulse("c", RUNNING)
        if dice.random() < 0.05:  # a process ends, and another begins
            number, recorder = dice.choice(list(recorders.items()))
            totals.add(lambda number=number, recorder=recorder: [(number, recorder.snapshot())])  # type: ignore[misc]
            totals.forget(number)
            del recorders[number]
            recorders[max(recorders) + 1 + dice.randrange(5)] = Recorder("q", clock)
        whole = totals.page(lambda: [(n, one.snapshot()) for n, one in recorders.items()])
        rows = whole.queues["q"].names
        assert len(rows) <= MAX_NAMES + 1
        for name, runs in rows.items():
            same = serials.get(name) == runs.series
            assert not same or runs.completed >= before[name]
            counted += runs.completed - (before[name] if same else 0)
        ended += len(serials.keys() - rows.keys())
        before = {name: runs.completed for name, runs in rows.items()}
        serials = {name: runs.series for name, runs in rows.items()}
    assert counted == ran
    assert ended > BURST / 2


def test_a_table_of_rows_stays_bounded() -> None:
    clock = Clock()
    rows = Rows(5, clock)
    for number in range(10_000):
        clock.now += 0.5
        rows.row(f"n-{number}").added += 1
    assert len(rows.rows) == 6
    assert len(rows._used) == len(rows._strangers) == 5
