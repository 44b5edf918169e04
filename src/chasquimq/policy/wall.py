"""The wall times that a cron expression names: dates and times of day, without a zone. Pure.

A wall time is counted in seconds from 1970-01-01 00:00 on the wall, whatever zone the wall is in.
Each field of the expression is a set of small numbers, kept as the bits of an int: whether it holds
a number is one shift, and its first number from n on is the lowest bit that a shift by n leaves.

Days need one table more, because they depend on the month. But a month is only one of 28 kinds:
28 to 31 days long, beginning on one of 7 weekdays. So the days are worked out once per kind, and
the search for the next one goes through the months by looking them up.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterable
from datetime import date

import msgspec

DAY_S = 86_400
LAST_YEAR = 9999  # the last one that dates have
LAST = 0  # in place of a weekday's number in its month: the last one
CYCLE_YEARS = 400  # after so many the calendar, weekdays included, begins anew

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def bits(numbers: Iterable[int]) -> int:
    """A set of numbers as an int."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


EVERY_YEAR = bits(range(1, LAST_YEAR + 1))
_EVERY_SECOND = bits(range(60))
_EVERY_HOUR = bits(range(24))
_CYCLE = bits(range(CYCLE_YEARS))


class Days(msgspec.Struct, frozen=True):
    """What an expression says of days. Weekdays are counted from Sunday, 0.

    A day must be named by both of its fields, of which `*` names every day. But when both say
    something, either will do, as in every cron since the first.
    """

    of_month: int | None  # None: the field is `*`
    last: bool  # `L`
    near: frozenset[int]  # `15W`: the working day nearest to that day, in the same month
    of_week: int | None
    nth: frozenset[tuple[int, int]]  # `FRI#2`: a weekday, and which one of the month; or LAST

    def table(self) -> tuple[int, ...]:
        """The days of each kind of month, as bits: by its length, then by its first weekday."""
        return tuple(self._days(length, first) for length in range(28, 32) for first in range(7))

    def _days(self, length: int, first: int) -> int:
        every = bits(range(1, length + 1))
        if self.of_month is None:
            return every if self.of_week is None else self._by_week(length, first)
        days = self.of_month & every
        if self.last:
            days |= 1 << length
        days |= bits(_working_day(day, length, first) for day in self.near if day <= length)
        return days if self.of_week is None else days | self._by_week(length, first)

    def _by_week(self, length: int, first: int) -> int:
        weekdays, days = self.of_week or 0, 0
        for day in range(1, length + 1):
            weekday = (first + day - 1) % 7
            if (
                weekdays >> weekday & 1
                or (weekday, (day + 6) // 7) in self.nth
                or (day + 7 > length and (weekday, LAST) in self.nth)
            ):
                days |= 1 << day
        return days


class Walls(msgspec.Struct, frozen=True):
    """All wall times of one expression."""

    seconds: int
    minutes: int
    hours: int
    days: tuple[int, ...]
    months: int
    years: int

    @property
    def every_second(self) -> bool:
        return self.seconds == _EVERY_SECOND

    @property
    def every_hour(self) -> bool:
        return self.hours == _EVERY_HOUR

    def exist(self) -> bool:
        """Is there any day at all? Years that are equal modulo 400 have equal calendars, so 400 of
        them decide it."""
        cycle, years = 0, self.years
        while years:
            cycle |= years & _CYCLE
            years >>= CYCLE_YEARS
        folded = msgspec.structs.replace(self, years=cycle << CYCLE_YEARS)
        return folded._day_from(CYCLE_YEARS, 1, 1) is not None

    def first_from(self, wall: int) -> int | None:
        """The first wall time that is not before `wall`."""
        days, second = divmod(wall, DAY_S)
        ordinal = days + _EPOCH_DAY
        today = date.fromordinal(ordinal)
        found = self._day_from(today.year, today.month, today.day)
        if found == ordinal:
            time = self._time_from(second)
            if time >= 0:
                return wall - second + time
            found = self._day_from(today.year, today.month, today.day + 1)
        return None if found is None else (found - _EPOCH_DAY) * DAY_S + self._time_from(0)

    def _day_from(self, year: int, month: int, day: int) -> int | None:
        """The first day that is not before the given one, as its ordinal. The given one need not
        exist: 32 January is before 1 February."""
        while (a_year := _first(self.years, year)) >= 0:
            if a_year > year:
                year, month, day = a_year, 1, 1
            while (a_month := _first(self.months, month)) >= 0:
                if a_month > month:
                    month, day = a_month, 1
                begin = date(year, month, 1).toordinal()
                length = 29 if month == 2 and isleap(year) else _LENGTHS[month]
                # Ordinals begin on a Monday with 1: modulo 7 they count weekdays from Sunday.
                a_day = _first(self.days[(length - 28) * 7 + begin % 7], day)
                if a_day >= 0:
                    return begin + a_day - 1
                month, day = month + 1, 1
            year, month, day = year + 1, 1, 1
        return None

    def _time_from(self, second: int) -> int:
        """The first second of a day, counted from midnight, that is not before the given one; -1
        when the day has none left."""
        hour, rest = divmod(second, 3600)
        minute, second = divmod(rest, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1:
                a_second = _first(self.seconds, second)
                if a_second >= 0:
                    return hour * 3600 + minute * 60 + a_second
            a_minute = _first(self.minutes, minute + 1)
            if a_minute >= 0:
                return hour * 3600 + a_minute * 60 + _first(self.seconds, 0)
        a_hour = _first(self.hours, hour + 1)
        if a_hour < 0:
            return -1
        return a_hour * 3600 + _first(self.minutes, 0) * 60 + _first(self.seconds, 0)


def _first(mask: int, start: int) -> int:
    """The first number of a set that is not below `start`; -1 when there is none."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1


def _working_day(day: int, length: int, first: int) -> int:
    """The day from Monday to Friday that is nearest to `day` and in the same month."""
    weekday = (first + day - 1) % 7
    if weekday == 6:  # Saturday: the day before, unless that is another month's
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day
