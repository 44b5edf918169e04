"""Where clocks are turned: every fire against a scan of real instants, one step after the other.

What the scan says is the definition (docs/decisions/0029-daylight-saving.md):

- hours `*`: an instant fires if and only if the clock then shows a time that matches;
- certain hours: ... and it is the first time that the clock shows it; besides, the first instant
  after a skip fires if a time that was skipped matches (not so for patterns of every second).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pytest

from chasquimq.policy.cron import read_cron

HOUR = 3600


class Pattern(NamedTuple):
    expression: str
    matches: Callable[[datetime], bool]  # of what the clock shows, at second 0


class Turn(NamedTuple):
    zone: str
    at: int  # the first instant on the new time

    def __str__(self) -> str:
        return f"{self.zone} {datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M}"


EVERY_HOUR = [
    Pattern("* * * * *", lambda w: True),
    Pattern("0 * * * *", lambda w: w.minute == 0),
    Pattern("15 * * * *", lambda w: w.minute == 15),
    Pattern("*/20 */1 * * *", lambda w: w.minute % 20 == 0),
    Pattern("5-50/15 0-23 * * *", lambda w: w.minute in (5, 20, 35, 50)),
    Pattern("59 * * * SUN", lambda w: w.minute == 59 and w.isoweekday() == 7),
    Pattern("1 * L * *", lambda w: w.minute == 1 and (w + timedelta(days=1)).day == 1),
]
CERTAIN_HOURS = [
    Pattern("30 2 * * *", lambda w: (w.hour, w.minute) == (2, 30)),
    Pattern("0 2 * * *", lambda w: (w.hour, w.minute) == (2, 0)),
    Pattern("0 3 * * *", lambda w: (w.hour, w.minute) == (3, 0)),
    Pattern("30 1 * * *", lambda w: (w.hour, w.minute) == (1, 30)),
    Pattern("*/10 2 * * *", lambda w: w.hour == 2 and w.minute % 10 == 0),
    Pattern("* 1 * * *", lambda w: w.hour == 1),
    Pattern("* 2-3 * * *", lambda w: w.hour in (2, 3)),
    Pattern("0,45 1-3 * * *", lambda w: w.hour in (1, 2, 3) and w.minute in (0, 45)),
    Pattern("15 0-22 * * *", lambda w: w.hour < 23 and w.minute == 15),
    Pattern("0 0 * * *", lambda w: (w.hour, w.minute) == (0, 0)),
    Pattern("1 0 * * *", lambda w: (w.hour, w.minute) == (0, 1)),
    Pattern("30 0,23 * * *", lambda w: w.hour in (0, 23) and w.minute == 30),
    Pattern("0 12 * * *", lambda w: (w.hour, w.minute) == (12, 0)),
    Pattern("*/30 2 * * SUN", lambda w: w.hour == 2 and w.minute % 30 == 0 and w.weekday() == 6),
]
YEARS = [
    ("America/New_York", 2025),
    ("Europe/London", 2025),
    ("Europe/Berlin", 2025),
    ("Australia/Lord_Howe", 2025),  # by half an hour
    ("Antarctica/Troll", 2025),  # by two hours
    ("Africa/Casablanca", 2024),  # back and forth for Ramadan
    ("America/Santiago", 2025),  # at midnight: a day without 0:00
    ("America/St_Johns", 2010),  # at one minute past midnight
    ("Pacific/Apia", 2011),  # a day that never was
    ("Pacific/Kwajalein", 1993),  # another, a Saturday
    ("America/Caracas", 2007),  # no summer time: by half an hour, for years
    ("Africa/Monrovia", 1972),  # by 44 minutes and a half
]


def shown_at(zone: str, instant: int) -> datetime:
    """What the clock shows, as plain digits."""
    return datetime.fromtimestamp(instant, ZoneInfo(zone)).replace(tzinfo=UTC, fold=0)


def offset_at(zone: str, instant: int) -> timedelta:
    return shown_at(zone, instant) - datetime.fromtimestamp(instant, UTC)


def turns() -> Iterator[Turn]:
    """Those of the years above, which are history: laws to come cannot change them."""
    for zone, year in YEARS:
        begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
        for day in range(begin, begin + 365 * 24 * HOUR, 24 * HOUR):
            at, before = day, offset_at(zone, day)
            for step in (24 * HOUR, HOUR, 60, 1):  # ever nearer
                while offset_at(zone, at + step) == before and at < day + 24 * HOUR:
                    at += step
            if at < day + 24 * HOUR:
                yield Turn(zone, at + 1)


TURNS = list(turns())


class Moment(NamedTuple):
    instant: int
    wall: datetime
    is_first: bool  # the clock has not shown this before
    skipped: list[datetime]  # what the clock would have shown since the moment before


@cache
def scan(turn: Turn, around: int, step: int) -> list[Moment]:
    """The moments around a turn, and what the clock shows at each."""
    found: list[Moment] = []
    seen: set[datetime] = set()
    start = turn.at - around
    last = shown_at(turn.zone, start - step)
    for instant in range(start, turn.at + around, step):
        wall = shown_at(turn.zone, instant)
        steps = max(0, (wall - last) // timedelta(seconds=step) - 1)
        skipped = [last + timedelta(seconds=step * n) for n in range(1, steps + 1)]
        found.append(Moment(instant, wall, wall not in seen, skipped))
        seen.add(wall)
        last = wall
    return found


def expected(
    moments: list[Moment], matches: Callable[[datetime], bool], every_hour: bool
) -> list[int]:
    if every_hour:
        return [moment.instant for moment in moments if matches(moment.wall)]
    return [
        moment.instant
        for moment in moments
        if (moment.is_first and matches(moment.wall)) or any(map(matches, moment.skipped))
    ]


def chain(expression: str, zone: str, begin: int, end: int) -> list[int]:
    cron = read_cron(expression, zone)
    fires: list[int] = []
    at = cron.after((begin - 1) * 1000)
    while at is not None and at < end * 1000:
        fires.append(at // 1000)
        at = cron.after(at)
    return fires


def test_the_turns_are_those_that_happened() -> None:
    counts = {zone: sum(turn.zone == zone for turn in TURNS) for zone, _ in YEARS}
    assert counts == {**dict.fromkeys(counts, 2), "Pacific/Apia": 3} | {
        "Pacific/Kwajalein": 1,
        "America/Caracas": 1,
        "Africa/Monrovia": 1,
    }
    skips = [max(len(moment.skipped) for moment in scan(turn, 26 * HOUR, 30)) for turn in TURNS]
    assert {2880, 240, 120, 89, 60, 0} <= set(skips)  # a day, two hours, ... in half minutes


@pytest.mark.parametrize("turn", TURNS, ids=str)
@pytest.mark.parametrize("pattern", [*EVERY_HOUR, *CERTAIN_HOURS], ids=lambda p: p.expression)
def test_fires_around_a_turn_are_those_of_a_scan(pattern: Pattern, turn: Turn) -> None:
    # Minutes of the wall are minutes of UTC, except where the clock was off by half a minute.
    moments = scan(turn, 26 * HOUR, 30 if turn.zone == "Africa/Monrovia" else 60)
    begin, end = moments[0].instant, moments[-1].instant
    fires = expected(moments, lambda w: w.second == 0 and pattern.matches(w), pattern in EVERY_HOUR)
    assert chain(pattern.expression, turn.zone, begin, end) == [f for f in fires if f < end]
    cron = read_cron(pattern.expression, turn.zone)
    for at in range(begin, end, 17 * 61):  # and the same from anywhere in between
        later = [fire for fire in fires if fire > at]
        if later:
            assert cron.after(at * 1000 + 999) == later[0] * 1000


@pytest.mark.parametrize("turn", TURNS[:8], ids=str)
@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("*/20 30 2 * * *", lambda w: (w.hour, w.minute) == (2, 30) and w.second % 20 == 0),
        ("59 59 1 * * *", lambda w: (w.hour, w.minute, w.second) == (1, 59, 59)),
        ("1 0 1-3 * * *", lambda w: w.hour in (1, 2, 3) and (w.minute, w.second) == (0, 1)),
    ],
    ids=["steps", "last second", "second after"],
)
def test_seconds_around_a_turn_are_those_of_a_scan(
    expression: str, matches: Callable[[datetime], bool], turn: Turn
) -> None:
    moments = scan(turn, 3 * HOUR, 1)
    begin, end = moments[0].instant, moments[-1].instant + 1
    assert chain(expression, turn.zone, begin, end) == expected(moments, matches, False)


@pytest.mark.parametrize("turn", TURNS[:8], ids=str)
@pytest.mark.parametrize("seconds", ["*", "*/1", "0-59"])
def test_every_second_of_an_hour_is_not_made_up_for(seconds: str, turn: Turn) -> None:
    moments = scan(turn, 3 * HOUR, 1)
    begin, end = moments[0].instant, moments[-1].instant + 1
    first = [moment for moment in moments if moment.is_first]
    fires = [m.instant for m in first if (m.wall.hour, m.wall.minute) == (2, 30)]
    assert chain(f"{seconds} 30 2 * * *", turn.zone, begin, end) == fires
    fires = [m.instant for m in first if m.wall.hour in (2, 3) and m.wall.minute == 0]
    assert chain(f"{seconds} 0 2,3 * * *", turn.zone, begin, end) == fires


def local(expression: str, tz: str, start: str, count: int) -> list[str]:
    zone = ZoneInfo(tz)
    at = int(datetime.fromisoformat(start).replace(tzinfo=zone).timestamp()) * 1000
    found = []
    for _ in range(count):
        next_ms = read_cron(expression, tz).after(at)
        assert next_ms is not None
        at = next_ms
        found.append(datetime.fromtimestamp(at / 1000, zone).strftime("%m-%d %H:%M %Z"))
    return found


def test_a_nightly_job_runs_each_night_once() -> None:
    assert local("30 2 * * *", "America/New_York", "2027-03-13 12:00", 3) == [
        "03-14 03:00 EDT",
        "03-15 02:30 EDT",
        "03-16 02:30 EDT",
    ]
    assert local("30 1 * * *", "America/New_York", "2027-11-06 12:00", 2) == [
        "11-07 01:30 EDT",
        "11-08 01:30 EST",
    ]


def test_an_hourly_job_runs_each_hour_that_passes() -> None:
    assert local("0 * * * *", "America/New_York", "2027-03-14 00:30", 3) == [
        "03-14 01:00 EST",
        "03-14 03:00 EDT",
        "03-14 04:00 EDT",
    ]
    assert local("0 * * * *", "America/New_York", "2027-11-07 00:30", 3) == [
        "11-07 01:00 EDT",
        "11-07 01:00 EST",
        "11-07 02:00 EST",
    ]


def test_several_skipped_times_are_made_up_for_by_one_fire() -> None:
    assert local("*/10 2,3 * * *", "Europe/Berlin", "2027-03-28 01:00", 2) == [
        "03-28 03:00 CEST",
        "03-28 03:10 CEST",
    ]


NIGHTS = {  # as the page shows them: in New York, 2027
    "0 * * * *": ("1:00 3:00 4:00", "1:00 1:00 2:00 3:00 4:00"),
    "15 * * * *": ("1:15 3:15 4:15", "1:15 1:15 2:15 3:15 4:15"),
    "30 1 * * *": ("1:30", "1:30"),
    "30 2 * * *": ("3:00", "2:30"),
    "0,30 2 * * *": ("3:00", "2:00 2:30"),
    "0 2,3 * * *": ("3:00", "2:00 3:00"),
    "15 1-3 * * *": ("1:15 3:00 3:15", "1:15 2:15 3:15"),
    "* 30 2 * * *": ("", " ".join(["2:30"] * 60)),
}


@pytest.mark.parametrize("expression", NIGHTS)
def test_the_nights_of_the_page_are_so(expression: str) -> None:
    zone = ZoneInfo("America/New_York")
    for night, shown in zip(((3, 14), (11, 7)), NIGHTS[expression], strict=True):
        begin, end = (int(datetime(2027, *night, h, 30, tzinfo=zone).timestamp()) for h in (0, 4))
        fires = chain(expression, zone.key, begin, end)
        clock = [datetime.fromtimestamp(fire, zone) for fire in fires]
        assert " ".join(f"{w.hour}:{w:%M}" for w in clock) == shown
    page = (Path(__file__).parents[2] / "docs/reference/cron.md").read_text()
    assert f"\n| `{expression}` |" in page
