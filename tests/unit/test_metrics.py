"""Metrics sinks: which callback hears what, and who is asked for it."""

from __future__ import annotations

import re
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from chasquimq import happening as it
from chasquimq.errors import ConfigError
from chasquimq.happening import Happening
from chasquimq.health import Health
from chasquimq.job import Reason
from chasquimq.observe.announce import announcer
from chasquimq.observe.memory import Call, InMemorySink
from chasquimq.observe.metrics import (
    OTHER,
    DlqRouted,
    JobAdded,
    JobOutcome,
    LockOutcome,
    MetricsSink,
    Names,
    PromoterTick,
    ReaderBatch,
    RetryScheduled,
    SchedulerTick,
    SpecFired,
    listening,
)

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
CALLBACKS = [name for name in vars(MetricsSink) if not name.startswith("_")]
TOLD: list[tuple[Happening, str, Any]] = [  # what happened, the callback, what it gets
    (it.Ticked(3, 2, 7), "promoter_tick", PromoterTick(3, 2, 7)),
    (it.LockTurned("promoter", True), "promoter_lock_outcome", LockOutcome("acquired", "promoter")),
    (it.LockTurned("scheduler", False), "promoter_lock_outcome", LockOutcome("held", "scheduler")),
    (it.Read(5, 2), "reader_batch", ReaderBatch(5, 2)),
    (it.Completed("id", "n", 1, 9), "job_outcome", JobOutcome("ok", 1, 9, "n")),
    (it.Failed("id", "n", 2, 9, "no"), "job_outcome", JobOutcome("err", 2, 9, "n")),
    (it.Failed("id", "n", 2, 9, "no", True), "job_outcome", JobOutcome("timeout", 2, 9, "n")),
    (it.RetryScheduled("id", "n", 2, 150), "retry_scheduled", RetryScheduled(2, 150, "n")),
    (it.Buried("id", "n", 3, "malformed"), "dlq_routed", DlqRouted("malformed", 3, "n")),
    (it.SpecsTicked(4, 3, 8), "scheduler_tick", SchedulerTick(4, 3, 8)),
    (it.Fired("k@1", "n", "k", 5), "spec_fired", SpecFired("k", "n", 5)),
    (it.PutAside("k", "no hash"), "spec_put_aside", ("k", "no hash")),
    (it.LeasesLost(4), "leases_lost", 4),
    (it.GivenBack(5), "given_back", 5),
    (it.Swept(1, 2), "swept", (1, 2)),
    (it.EventsDropped(6), "events_dropped", 6),
    (it.CameTooLate(7), "came_too_late", 7),
    (it.Reconnected("reader"), "reconnected", "reader"),
    (it.Added("id", "n", True), "job_added", JobAdded("n", True)),
    (it.Refused(8), "refused", 8),
    (it.GroupRecreated(), "group_recreated", None),
]
PULSE = it.Pulsed("c-1", Health(state="running", running=2))  # comes with time: in no list of calls
UNTOLD: list[Happening] = [  # of interest to the events stream only
    it.Started("id", "n", 1, 0),
    it.Promoted("id", "n"),
    it.Drained(),
]


class Duck:
    """No subclass, and not all of the callbacks."""

    def __init__(self) -> None:
        self.outcomes: list[JobOutcome] = []
        self.refused = 0  # a counter, not a callback

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.outcomes.append(outcome)


# -- callbacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("happening", "callback", "value"), TOLD)
def test_a_happening_becomes_its_callback(happening: Happening, callback: str, value: Any) -> None:
    sink = InMemorySink()
    announcer([listening(sink)])(happening)
    assert sink.calls == [Call(callback, value)]


@pytest.mark.parametrize("happening", UNTOLD)
def test_other_happenings_are_passed_over(happening: Happening) -> None:
    sink = InMemorySink()
    listening(sink)(happening)
    assert sink.calls == []


def test_the_tables_are_complete() -> None:
    kinds = set(typing.get_args(it.Happening))
    assert {type(what) for what in [*(row[0] for row in TOLD), *UNTOLD, PULSE]} == kinds
    assert {row[1] for row in TOLD} | {"pulse"} == set(CALLBACKS)


def test_a_pulse_says_which_worker_is_how() -> None:
    class Doctor(MetricsSink):
        def pulse(self, worker: str, health: Health) -> None:
            seen.append((worker, health))

    seen: list[tuple[str, Health]] = []
    sink = InMemorySink()
    announcer([listening(Doctor()), listening(sink)])(PULSE)
    assert seen == [("c-1", PULSE.health)]
    assert (sink.calls, sink.healths) == ([], {"c-1": PULSE.health})


def test_a_memory_of_pulses_is_bounded() -> None:
    sink = InMemorySink(limit=2)
    for number in range(4):
        sink.pulse(f"c-{number}", Health())
    assert list(sink.healths) == ["c-2", "c-3"]


def test_the_base_hears_everything_and_does_nothing() -> None:
    hear = listening(MetricsSink())
    for happening in [row[0] for row in TOLD] + UNTOLD:
        hear(happening)


def test_reasons_are_plain_words() -> None:
    sink = InMemorySink()
    listening(sink)(it.Buried("", "", 0, Reason.MALFORMED))
    assert type(sink.heard("dlq_routed")[0].reason) is str


@pytest.mark.parametrize(
    "value",
    [PromoterTick, LockOutcome, ReaderBatch, JobOutcome, RetryScheduled, DlqRouted, SchedulerTick,
     SpecFired, JobAdded],
)  # fmt: skip
def test_the_reference_page_names_every_field(value: Any) -> None:
    section = PAGE.partition(f"\n## {value.__name__}\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(value._fields)


def test_the_reference_page_names_every_callback() -> None:
    section = PAGE.partition("\n## Callbacks\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == CALLBACKS


# -- who is asked, and when -----------------------------------------------------------------------


def test_any_object_with_some_of_the_callbacks_will_do() -> None:
    duck = Duck()
    hear = listening(duck)
    for happening in [row[0] for row in TOLD] + UNTOLD:
        hear(happening)
    assert [outcome.kind for outcome in duck.outcomes] == ["ok", "err", "timeout"]
    assert duck.refused == 0


def test_a_sink_is_asked_once_what_it_hears() -> None:
    asked: Counter[str] = Counter()

    class Curious:
        def __getattr__(self, name: str) -> Any:
            asked[name] += 1
            return lambda *values: None

    hear = listening(Curious())
    before = Counter(asked)
    for happening in [row[0] for row in TOLD] * 10:
        hear(happening)
    assert asked == before
    assert set(asked) == set(CALLBACKS)


def test_what_a_subclass_leaves_alone_is_never_called(monkeypatch: pytest.MonkeyPatch) -> None:
    class Outcomes(MetricsSink):
        def job_outcome(self, outcome: JobOutcome) -> None:
            seen.append(outcome)

    class Deeper(Outcomes):
        pass

    def broken(*_: Any) -> None:
        raise AssertionError("nobody asked for it")

    seen: list[JobOutcome] = []
    for name in CALLBACKS:
        monkeypatch.setattr(MetricsSink, name, broken)
    hear = listening(Deeper())
    for happening in [row[0] for row in TOLD]:
        hear(happening)
    assert len(seen) == 3


def test_a_callback_may_be_set_on_the_object() -> None:
    sink = MetricsSink()
    lost: list[int] = []
    sink.leases_lost = lost.append  # type: ignore[method-assign]
    listening(sink)(it.LeasesLost(3))
    assert lost == [3]


def test_a_sink_that_raises_everywhere_is_not_felt() -> None:
    class Raises:
        def __getattr__(self, name: str) -> Any:
            def callback(*values: Any) -> None:
                raise RuntimeError(name)

            return callback

    sink = InMemorySink()
    announce = announcer([listening(Raises()), listening(sink)])
    for happening in [row[0] for row in TOLD]:
        announce(happening)
    assert len(sink.calls) == len(TOLD)


class Async(MetricsSink):
    async def job_outcome(self, outcome: JobOutcome) -> None:  # type: ignore[override]
        pass


@pytest.mark.parametrize(
    ("sink", "complaint"),
    [
        (InMemorySink, r"not its class: InMemorySink\(\)"),
        (object(), "object has none of the callbacks"),
        (print, "none of the callbacks"),
        (None, "NoneType has none of the callbacks"),
        (Async(), "Async.job_outcome must be a plain function, not async"),
    ],
)
def test_what_cannot_be_a_sink_is_refused_when_attached(sink: object, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        listening(sink)


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError):
        JobOutcome("ok", 1, 2, "n").attempt = 3  # type: ignore[misc]


# -- names -----------------------------------------------------------------------------------------


def test_names_beyond_the_limit_are_others() -> None:
    names = Names(2)
    assert [names.label(name) for name in ("a", "b", "c", "a", "b", "d", "c")] == [
        *("a", "b", OTHER, "a", "b", OTHER, OTHER)
    ]
