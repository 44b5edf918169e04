"""Time zones: what a name stands for, and which instant comes next on a clock that is turned. Pure.

Instants are whole seconds since 1970, UTC; wall times are what the zone's clock on the wall shows,
counted the same way. Where the clock is turned, two rules (docs/decisions/0029-daylight-saving.md):

- An expression for every hour follows the clock: an instant is meant exactly if the clock shows a
  wall time that is meant. An hour shown twice is meant twice, a skipped one never.
- One for certain hours means each wall time once: the first time that the clock shows it or, when
  the clock skips it, the first instant after the skip.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from importlib import resources

from chasquimq.errors import ArgumentError, ConfigError

FirstFrom = Callable[[int], int | None]  # the first wall time meant that is not before this one

_OFFSET = re.compile(r"([+-])([0-9]{1,2}):([0-9]{2})|([+-])([0-9]{2})([0-9]{2})")
_NO_PLACES = frozenset({"Factory", "localtime"})  # zone files that name no zone
_HINT = "write UTC, an offset such as +05:30 or a name such as Europe/Berlin"


def read_zone(tz: str | None) -> tzinfo:
    """None, nothing and blanks are UTC. A zone whose clock is never turned is a `timezone`."""
    if tz is None:
        return UTC
    if not isinstance(tz, str):
        raise ArgumentError(f"tz is the name of a time zone, got {tz!r:.80}")
    name = tz.strip()
    if name == "" or name == "Z" or name.upper() == "UTC":
        return UTC
    if name[0] in "+-":
        return _read_offset(name)
    # Names are looked up before any file is: a name is never a path to somewhere else.
    if name not in _names() and name not in _all_names():
        raise ConfigError(f"unknown time zone {name!r:.80}; {_suggestion(name)}")
    from zoneinfo import ZoneInfo  # not for the many who have no zones

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the zone file of {name!r:.80} cannot be read: {error}") from error


def next_instant(
    zone: tzinfo, at: int, first_from: FirstFrom, *, every_hour: bool, every_second: bool
) -> int | None:
    """The first instant after `at` that is meant."""
    here = datetime.fromtimestamp(at, zone)
    wall = at + _seconds(here.utcoffset())
    if every_hour:
        return _next_shown(zone, at, wall, here.fold, first_from)
    start = wall + 1
    if here.fold:
        # The clock shows an hour again, all of which has been meant: go on at its end.
        before, after = _offsets(zone, wall)
        start = _turn(zone, wall, before, after) + before
    found = first_from(start)
    while found is not None:
        before, after = _offsets(zone, found)
        if before >= after:
            return found - before
        turn = _turn(zone, found, before, after)
        if not every_second:
            return turn
        # What is meant each second is not short of a second: nothing has to be made up for.
        found = first_from(turn + after)
    return None


def _next_shown(zone: tzinfo, at: int, wall: int, fold: int, first_from: FirstFrom) -> int | None:
    """The first instant after `at` at which the clock shows a wall time that is meant."""
    found = first_from(wall + 1)
    before, after = _offsets(zone, wall)
    if before > after and not fold:
        # All that follows will be shown again, and what the clock showed just now, too.
        turn = _turn(zone, wall, before, after)
        if found is None or found >= turn + before:
            found = first_from(turn + after)
    while found is not None:
        before, after = _offsets(zone, found)
        if before >= after:
            return found - before if found - before > at else found - after
        found = first_from(_turn(zone, found, before, after) + after)
    return None


def _offsets(zone: tzinfo, wall: int) -> tuple[int, int]:
    """What the clock is ahead of UTC when it shows `wall`: before a turn and after it.

    Usually there is no turn near, and they are equal. Less after than before: the clock shows
    `wall` twice. More after than before: it never does.
    """
    shown = datetime.fromtimestamp(wall, UTC)  # a zone looks at the digits and the fold only
    return _seconds(zone.utcoffset(shown)), _seconds(zone.utcoffset(shown.replace(fold=1)))


def _turn(zone: tzinfo, wall: int, before: int, after: int) -> int:
    """The first instant after the clock was turned, given a wall time that it skips or repeats."""
    low, high = wall - max(before, after), wall - min(before, after)
    while high - low > 1:
        middle = (low + high) // 2
        if _seconds(datetime.fromtimestamp(middle, zone).utcoffset()) == before:
            low = middle
        else:
            high = middle
    return high


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None
    return offset.days * 86_400 + offset.seconds


def _read_offset(text: str) -> timezone:
    found = _OFFSET.fullmatch(text)
    if not found:
        raise ConfigError(f"time zone {text!r:.80} is no offset; write it as +05:30")
    sign, hours, minutes = (part for part in found.groups() if part is not None)
    if int(hours) > 23 or int(minutes) > 59:
        raise ConfigError(f"time zone {text!r:.80} must be from -23:59 to +23:59")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if sign == "-" else offset)


@cache
def _names() -> frozenset[str]:
    """The names in the `tzdata` package; asking the file system for all of its files is slow."""
    try:
        listed = (resources.files("tzdata") / "zones").read_text("ascii")
    except (ModuleNotFoundError, OSError):
        return _all_names()
    return frozenset(listed.split()) - _NO_PLACES


@cache
def _all_names() -> frozenset[str]:
    """These, and those that the system knows beyond them."""
    from zoneinfo import available_timezones

    return frozenset(available_timezones()) - _NO_PLACES


def _suggestion(name: str) -> str:
    known = {known.lower(): known for known in _names() | _all_names()}
    near = difflib.get_close_matches(name[:80].lower(), known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else _HINT
