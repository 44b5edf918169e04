"""One announce for many sinks: all of them hear, none is felt, and none fills the log."""

from __future__ import annotations

import asyncio
import logging

import pytest

from chasquimq.happening import Drained, Happening, Promoted
from chasquimq.observe.announce import announcer

WHAT = Promoted("id", "name")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def failing(happening: Happening) -> None:
    raise ValueError("no")


def cancelled(happening: Happening) -> None:
    raise asyncio.CancelledError


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("bad", [failing, cancelled])
def test_a_sink_that_raises_is_logged_and_the_others_hear(
    bad: object, caplog: pytest.LogCaptureFixture
) -> None:
    one: list[Happening] = []
    other: list[Happening] = []
    announcer([one.append, bad, other.append])(WHAT)  # type: ignore[list-item]
    assert one == other == [WHAT]
    assert lines(caplog) == ["a sink failed on Promoted"]
    assert caplog.records[0].exc_info is not None  # where it failed
    assert caplog.records[0].levelno == logging.ERROR


def test_an_only_sink_that_raises_is_not_felt(caplog: pytest.LogCaptureFixture) -> None:
    announcer([failing])(WHAT)
    assert lines(caplog) == ["a sink failed on Promoted"]


def test_nobody_needs_to_listen() -> None:
    announcer([])(WHAT)


def test_a_sink_may_end_the_program() -> None:
    def ends(happening: Happening) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        announcer([ends])(WHAT)


@pytest.mark.parametrize("sinks", [1, 2])
def test_a_sink_that_always_raises_is_reported_once_a_minute(
    sinks: int, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    announce = announcer([failing] * sinks, clock)
    for _ in range(1000):
        announce(WHAT)
    assert lines(caplog) == ["a sink failed on Promoted"] * sinks
    clock.now = 59.9
    announce(WHAT)
    assert len(caplog.records) == sinks
    caplog.clear()

    clock.now = 60.0
    announce(Drained())
    announce(WHAT)
    more = "a sink failed on Drained, and 1000 times more since the last report"
    assert lines(caplog) == [more] * sinks
    caplog.clear()

    clock.now = 120.0
    announce(WHAT)
    more = "a sink failed on Promoted, and 1 times more since the last report"
    assert lines(caplog) == [more] * sinks
    caplog.clear()

    clock.now = 1000.0  # nothing was left unsaid
    announce(WHAT)
    assert lines(caplog) == ["a sink failed on Promoted"] * sinks


def test_each_sink_is_reported_on_its_own(caplog: pytest.LogCaptureFixture) -> None:
    def fails_when_drained(happening: Happening) -> None:
        if isinstance(happening, Drained):
            raise KeyError

    announce = announcer([failing, fails_when_drained], Clock())
    announce(WHAT)
    announce(Drained())
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [
        ValueError,
        KeyError,
    ]
