"""Cron expressions: a text in, the instants at which it fires out. Pure.

    seconds   minutes   hours   day of month   month   day of week   year
    (first of 6 or 7)                                                (last of 7)

`read_cron` reads the text once, field by field, into a frozen value; `Cron.after` then finds the
next fire, first on the wall (`wall`), then in time (`clock`). The dialect is the reference's, whose
page is docs/reference/cron.md; what it makes of a slip of the pen (`JANFEB` is December to it) is
refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple

import msgspec

from chasquimq.config import nearest
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.policy.clock import next_instant, read_zone
from chasquimq.policy.moment import LAST_MS
from chasquimq.policy.wall import EVERY_YEAR, LAST, Days, Walls, bits

MAX_LENGTH = 1000  # characters
MAX_STEP = 65_535
MAX_KEPT = 1024  # expressions that were read and are remembered

_END = LAST_MS // 1000  # from then on nothing fires

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_WORD = re.compile(r"(?:\S|[\x1c-\x1f])+")  # those four are blanks to Python, and to nobody else
_DIGITS = re.compile(r"[0-9]+")
_NTH = re.compile(r"0*([1-5])|L")


class Field(NamedTuple):
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()  # for the numbers from `low` on
    skips: bool = False  # may be `?`


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

SECONDS = Field("seconds", 0, 59)
MINUTES = Field("minutes", 0, 59)
HOURS = Field("hours", 0, 23)
DAY_OF_MONTH = Field("day of month", 1, 31, skips=True)
MONTH = Field("month", 1, 12, _MONTHS)
DAY_OF_WEEK = Field("day of week", 0, 7, _WEEKDAYS, skips=True)
YEAR = Field("year", 1, 5000)
FIELDS = (SECONDS, MINUTES, HOURS, DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR)


class Cron(msgspec.Struct, frozen=True):
    """An expression in its zone."""

    expression: str
    zone: tzinfo
    walls: Walls
    offset_s: int | None  # what the zone is ahead of UTC, if its clock is never turned

    def __repr__(self) -> str:
        return f"<Cron {self.expression!r:.80} in {self.zone}>"

    def after(self, at_ms: int) -> int | None:
        """The first fire strictly after that moment, on a whole second; None: none will come."""
        at = at_ms // 1000
        if at >= _END:
            return None
        if self.offset_s is None:
            fire = next_instant(
                self.zone,
                at,
                self.walls.first_from,
                every_hour=self.walls.every_hour,
                every_second=self.walls.every_second,
            )
        else:
            wall = self.walls.first_from(at + self.offset_s + 1)
            fire = None if wall is None else wall - self.offset_s
        return None if fire is None or fire >= _END else fire * 1000


def read_cron(expression: str, tz: str | None = None) -> Cron:
    """Raises ConfigError for what cannot be read, and for what can never fire."""
    if not isinstance(expression, str):
        raise ArgumentError(f"a cron expression is text, got {expression!r:.80}")
    if len(expression) > MAX_LENGTH:
        raise ConfigError(
            f"a cron expression has at most {MAX_LENGTH} characters, got {len(expression)}: "
            f"{expression!r:.80}"
        )
    return _read(expression, read_zone(tz))


@lru_cache(MAX_KEPT)
def _read(expression: str, zone: tzinfo) -> Cron:
    walls = _read_walls(expression)
    if not walls.exist():
        raise ConfigError(
            f"cron expression {expression!r:.80} can never fire: no month that it names has a day "
            "that it names, in any of its years"
        )
    fixed = zone.utcoffset(None) if isinstance(zone, timezone) else None
    return Cron(expression, zone, walls, None if fixed is None else fixed // timedelta(seconds=1))


class _RefusedError(ValueError):
    """Why a field cannot be read. Whoever knows the whole expression says the rest."""


def _read_walls(expression: str) -> Walls:
    texts = _split(expression)
    note = "; of six fields the first is seconds" if len(texts) == 6 else ""
    if len(texts) == 5:
        texts = ["0", *texts]
    if len(texts) == 6:
        texts = [*texts, "*"]
    read: dict[Field, _Items] = {}
    for field, text in zip(FIELDS, texts, strict=True):
        try:
            read[field] = _read_field(field, text)
        except _RefusedError as why:
            raise ConfigError(
                f"cron expression {expression!r:.80}: {field.name} {text!r:.80}: {why}{note}"
            ) from None
    day, weekday = read[DAY_OF_MONTH], read[DAY_OF_WEEK]
    return Walls(
        seconds=bits(read[SECONDS].numbers),
        minutes=bits(read[MINUTES].numbers),
        hours=bits(read[HOURS].numbers),
        days=Days(
            of_month=None if day.is_every else bits(day.numbers),
            last=day.last,
            near=frozenset(day.near),
            of_week=None if weekday.is_every else bits(n % 7 for n in weekday.numbers),
            nth=frozenset(weekday.nth),
        ).table(),
        months=bits(read[MONTH].numbers),
        years=EVERY_YEAR if read[YEAR].is_every else bits(read[YEAR].numbers),
    )


def _split(expression: str) -> list[str]:
    """Five to seven texts, one per field."""
    words = _WORD.findall(expression)
    if words and words[0].startswith("@"):
        alias = " ".join(words).lower()
        if alias not in ALIASES:
            raise ConfigError(f"unknown cron alias {alias!r:.80}; {_other_alias(alias)}")
        words = ALIASES[alias].split()
    if not 5 <= len(words) <= 7:
        raise ConfigError(
            f"cron expression {expression!r:.80} has {len(words)} fields; write 5 (minutes, hours, "
            "day of month, month, day of week), 6 (seconds come first) or 7 (and the year last)"
        )
    return words


def _other_alias(alias: str) -> str:
    if alias == "@midnight":
        return "did you mean '@daily'?"
    if alias.startswith("@every"):
        return "an interval is no cron expression: repeat every so many milliseconds instead"
    return nearest(alias[:80], list(ALIASES))


class _Items:
    """What the items of one field name."""

    def __init__(self, numbers: Iterable[int] = (), is_every: bool = False) -> None:
        self.is_every = is_every  # the field is `*` or `?`
        self.numbers = set(numbers)
        self.last = False
        self.near: set[int] = set()
        self.nth: set[tuple[int, int]] = set()


def _read_field(field: Field, text: str) -> _Items:
    if not text.isascii():  # before `upper`, which makes an S of more than an s
        raise _RefusedError("only digits, English names and the signs of cron")
    text = text.upper()
    if text == "*" or (text == "?" and field.skips):
        return _Items(range(field.low, field.high + 1), is_every=True)
    items = _Items()
    parts = [part for part in text.split(",") if part]
    if not parts:
        raise _RefusedError("nothing but commas")
    for part in parts:
        if field is DAY_OF_MONTH and part[-1] in "LW":
            _read_day(part, items)
        elif field is DAY_OF_WEEK and (part[-1] == "L" or "#" in part):
            _read_weekday(part, items)
        else:
            items.numbers.update(_read_range(field, part))
    return items


def _read_day(part: str, items: _Items) -> None:
    """`L`, the last day; `15W`, the working day nearest to the 15th."""
    if part == "L":
        items.last = True
    elif part[-1] == "L":
        raise _RefusedError("L stands alone here; the last Friday is FRIL as day of week")
    else:
        items.near.add(_read_number(DAY_OF_MONTH, part[:-1]))


def _read_weekday(part: str, items: _Items) -> None:
    """`FRIL` or `FRI#L`, the last Friday; `FRI#2` the second one; `MON-WED#2` three such days."""
    days, sign, nth = part.partition("#")
    if not sign:
        if part == "L":
            raise _RefusedError("L needs a weekday before it: FRIL is the last Friday")
        items.nth.add((_read_number(DAY_OF_WEEK, part[:-1]) % 7, LAST))
        return
    which = _NTH.fullmatch(nth)
    if not which:
        raise _RefusedError(f"after # goes 1 to 5 or L, not {nth!r:.80}")
    number = int(which[1]) if which[1] else LAST
    items.nth.update((day % 7, number) for day in _read_range(DAY_OF_WEEK, days))


def _read_range(field: Field, part: str) -> range:
    """`5`, `1-5`, and with a step `*/5`, `1-5/2`, `5/10`: from 5 on."""
    span, slash, step = part.partition("/")
    if span == "*" or (span == "?" and field.skips):
        if not slash:
            raise _RefusedError(f"{span} names everything: it stands alone")
        low, high = field.low, field.high
    else:
        first, dash, last = span.partition("-")
        low = _read_number(field, first)
        high = _read_number(field, last) if dash else field.high if slash else low
        if last == "SUN":
            high = 7  # at the end of a range it is the last day of the week
        if low > high:
            raise _RefusedError(_backwards(field, first, last))
    return range(low, high + 1, _read_step(step) if slash else 1)


def _read_step(text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise _RefusedError(f"after / goes a number, not {text!r:.80}")
    step = int(text)
    if not 1 <= step <= MAX_STEP:
        raise _RefusedError(f"a step is from 1 to {MAX_STEP}, not {step}"[:120])
    return step


def _read_number(field: Field, text: str) -> int:
    if text in field.words:
        return field.low + field.words.index(text)
    if not _DIGITS.fullmatch(text):
        raise _RefusedError(_no_number(field, text))
    number = int(text)
    if not field.low <= number <= field.high:
        raise _RefusedError(f"{text:.80} is not in {field.low}-{field.high}")
    return number


def _no_number(field: Field, text: str) -> str:
    if not text:
        return "a number is missing"
    for other in (MONTH, DAY_OF_WEEK):
        if text in other.words and other is not field:
            return f"{text} belongs into the field {other.name}"
    if field.words and text.isalpha():
        return f"{text!r:.80} is no name; {nearest(text[:80], field.words)}"
    return f"{text!r:.80} is no number from {field.low} to {field.high}"


def _backwards(field: Field, first: str, last: str) -> str:
    """What to write instead of a range such as 22-2, which goes on past the end."""
    if field is YEAR:
        return f"a range goes upwards: write {last}-{first}"
    end, begin = str(field.high), str(field.low)
    if field is DAY_OF_WEEK:
        end, begin = ("SUN", "MON") if first in _WEEKDAYS else ("7", "1")
    elif first in field.words:
        end, begin = field.words[-1], field.words[0]
    head = first if first == end else f"{first}-{end}"
    if field is DAY_OF_WEEK and last == "0":
        return f"a range goes upwards: write {head}"
    tail = last if last == begin else f"{begin}-{last}"
    return f"a range goes upwards: write {head},{tail}"
