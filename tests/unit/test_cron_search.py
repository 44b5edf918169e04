"""Made-up cron expressions against a slow search of the test's own.

Each item of an expression brings the numbers, or the days, that it stands for, so that nothing of
the reader is needed to tell what the expression means.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from chasquimq.errors import ConfigError
from chasquimq.policy.cron import Cron, read_cron
from tests.tiers import examples

MAX_MS = 2**53 - 1
FIRST_MS, LAST_MS = 631_152_000_000, 4_417_977_600_000  # 1990 to 2110
ZONES = st.sampled_from([None, "+05:30", "-11:00", "Europe/Berlin", "Australia/Lord_Howe"])

Day = Callable[[date], bool]


class Made(NamedTuple):
    expression: str
    seconds: set[int]
    minutes: set[int]
    hours: set[int]
    day: Day

    def next(self, at: datetime) -> datetime | None:
        """Day by day, then time by time; None when nothing is found in five years."""
        times = [
            timedelta(hours=h, minutes=m, seconds=s)
            for h in sorted(self.hours)
            for m in sorted(self.minutes)
            for s in sorted(self.seconds)
        ]
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        for _ in range(5 * 366):
            if self.day(midnight.date()):
                for time in times:
                    if midnight + time > at:
                        return midnight + time
            midnight += timedelta(days=1)
        return None


@st.composite
def numbers(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int]]:
    first = draw(st.integers(low, high))
    last = draw(st.integers(first, high))
    step = draw(st.integers(1, high))
    return draw(
        st.sampled_from(
            [
                (f"{first}", {first}),
                (f"0{first}", {first}),
                (f"{first}-{last}", set(range(first, last + 1))),
                (f"{first}-{last}/{step}", set(range(first, last + 1, step))),
                (f"{first}/{step}", set(range(first, high + 1, step))),
                (f"*/{step}", set(range(low, high + 1, step))),
            ]
        )
    )


@st.composite
def field(draw: st.DrawFn, low: int, high: int) -> tuple[str, set[int]]:
    if draw(st.booleans()):
        return "*", set(range(low, high + 1))
    items = draw(st.lists(numbers(low, high), min_size=1, max_size=3))
    return ",".join(text for text, _ in items), set().union(*(found for _, found in items))


def length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def sunday0(day: date) -> int:
    return day.isoweekday() % 7


def working(number: int, day: date) -> bool:
    """Is `day` the working day nearest to that number, in its month?"""
    if number > length(day):
        return False
    month = [day.replace(day=n) for n in range(1, length(day) + 1)]
    days = [other for other in month if other.isoweekday() < 6]
    return day == min(days, key=lambda other: (abs(other.day - number), other.day))


@st.composite
def month_days(draw: st.DrawFn) -> tuple[str, Day]:
    text, found = draw(numbers(1, 31))
    number = draw(st.integers(1, 31))
    kinds: list[tuple[str, Day]] = [
        (text, lambda day: day.day in found),
        ("L", lambda day: day.day == length(day)),
        (f"{number}W", lambda day: working(number, day)),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def week_days(draw: st.DrawFn) -> tuple[str, Day]:
    text, found = draw(numbers(0, 7))
    weekday, nth = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    word = ["SUN", "mon", "Tue", "WED", "thu", "Fri", "SAT"][weekday]
    kinds: list[tuple[str, Day]] = [
        (text, lambda day: sunday0(day) in {n % 7 for n in found}),
        (word, lambda day: sunday0(day) == weekday),
        (f"{word}L", lambda day: sunday0(day) == weekday and day.day > length(day) - 7),
        (f"{weekday}#{nth}", lambda day: sunday0(day) == weekday and -(-day.day // 7) == nth),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def made(draw: st.DrawFn) -> Made:
    seconds = draw(field(0, 59))
    minutes, hours, months = draw(field(0, 59)), draw(field(0, 23)), draw(field(1, 12))
    by_month = draw(st.one_of(st.just([]), st.lists(month_days(), min_size=1, max_size=2)))
    by_week = draw(st.one_of(st.just([]), st.lists(week_days(), min_size=1, max_size=2)))
    texts = [",".join(text for text, _ in days) or "*" for days in (by_month, by_week)]
    either = [is_day for _, is_day in (*by_month, *by_week)]

    def day(day: date) -> bool:
        return day.month in months[1] and (not either or any(is_day(day) for is_day in either))

    with_seconds = draw(st.booleans())
    head = f"{seconds[0]} " if with_seconds else ""
    expression = f"{head}{minutes[0]} {hours[0]} {texts[0]} {months[0]} {texts[1]}"
    return Made(expression, seconds[1] if with_seconds else {0}, minutes[1], hours[1], day)


def read_or_refuse(expression: str, tz: str | None = None) -> Cron | str:
    try:
        return read_cron(expression, tz)
    except ConfigError as error:
        return str(error)


def next_fire(made: Made, tz: str | None, at_ms: int) -> int | None:
    cron = read_or_refuse(made.expression, tz)
    if isinstance(cron, str):
        assert "can never fire" in cron
        return None
    return cron.after(at_ms)


@given(made(), st.integers(FIRST_MS, LAST_MS))
@settings(deadline=None, max_examples=examples(300))
def test_a_made_up_expression_fires_next_when_a_slow_search_says_so(made: Made, at_ms: int) -> None:
    expected = made.next(datetime.fromtimestamp(at_ms / 1000, UTC))
    fire = next_fire(made, None, at_ms)
    if expected is not None:
        assert fire == round(expected.timestamp() * 1000)
    else:
        assert fire is None or fire > at_ms + 5 * 365 * 86_400_000


@given(made(), ZONES, st.integers(0, LAST_MS), st.floats(0, 1))
@settings(deadline=None, max_examples=examples(200))
def test_the_next_fire_is_the_same_from_anywhere_since_the_last(
    made: Made, tz: str | None, at_ms: int, part: float
) -> None:
    first = next_fire(made, tz, at_ms)
    if first is None:
        return
    assert first > at_ms and first % 1000 == 0
    assert next_fire(made, tz, at_ms + int((first - at_ms - 1) * part)) == first
    assert next_fire(made, tz, first - 1) == first
    second = next_fire(made, tz, first)
    assert second is None or second > first


@given(made(), ZONES, st.integers(0, MAX_MS))
@settings(deadline=None, max_examples=examples(200))
def test_any_moment_has_a_next_fire_or_none(made: Made, tz: str | None, at_ms: int) -> None:
    fire = next_fire(made, tz, at_ms)
    assert fire is None or (fire > at_ms and fire % 1000 == 0)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert str(read_or_refuse(text)).isprintable()


@given(st.lists(st.text("0123456789*/,-?LW#@FRISUNJ\t", max_size=6), min_size=5, max_size=7))
def test_any_text_with_the_signs_of_cron_is_read_or_refused(words: list[str]) -> None:
    assert str(read_or_refuse(" ".join(words))).isprintable()
