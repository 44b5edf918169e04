"""Times as people type them: how long (`2h`, `1h30m`) and when (`2026-11-16T09:00Z`). Pure.

how long   a number and a unit, or several: 500ms 30s 5m 2h 7d 1w 1h30m 1.5h
when       a date, with a time and a zone if wanted: 2026-11-16, 2026-11-16T09:00Z,
           2026-11-16 09:00+01:00, "2026-11-16 09:00 Europe/Berlin"; without a zone it is UTC
           milliseconds since 1970, as our tables show them: 1794819600000
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from chasquimq.errors import ConfigError
from chasquimq.policy.clock import read_zone
from chasquimq.policy.moment import epoch_ms
from chasquimq.text import shown

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "sec": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ms|sec|s|min|m|h|d|w) *")
_LONG = "500ms, 30s, 5m, 2h, 7d, 1w or 1h30m"
_WHEN = "2026-11-16, 2026-11-16T09:00Z or '2026-11-16 09:00 Europe/Berlin'"
_EPOCH_MS = re.compile(r"[0-9]{12,14}")  # from 1973 on; fewer digits are seconds, or a slip
_DATE = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}(?:[T ].*)?", re.IGNORECASE)
_ZONE = re.compile(r"(.*[0-9]) *\[?([A-Za-z][A-Za-z0-9_+/-]{2,})\]?")


def read_duration(text: str, option: str) -> timedelta:
    """How long; ConfigError, which names the option, for anything else."""
    found = _duration(text)
    if found is None:
        raise ConfigError(f"{option}: {_quoted(text)} is no duration; write {_LONG}")
    return found


def read_moment(text: str, option: str) -> datetime:
    """When; one without a zone is meant in UTC."""
    found = _moment(text, option)
    if found is None:
        raise ConfigError(f"{option}: {_quoted(text)} is no moment; write {_WHEN}")
    return found


def read_time(text: str, option: str) -> timedelta | datetime:
    """How long, or when: what filters and delays take."""
    found = _duration(text)
    when = _moment(text, option) if found is None else found
    if when is None:
        raise ConfigError(
            f"{option}: {_quoted(text)} is neither a duration ({_LONG}) nor a moment ({_WHEN})"
        )
    return when


def moment_ms(time: timedelta | datetime, now_ms: int) -> int:
    """Epoch ms; a duration is counted from now on."""
    if isinstance(time, timedelta):
        return now_ms + time // timedelta(milliseconds=1)
    return epoch_ms(time)


def duration_ms(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


def _duration(text: str) -> timedelta | None:
    text = text.strip()
    total, at = timedelta(0), 0
    try:
        while at < len(text):
            part = _PART.match(text, at)
            if part is None:
                return None
            total += float(part[1]) * _UNITS[part[2]]
            at = part.end()
    except OverflowError:
        return None
    return total if at else None


def _moment(text: str, option: str) -> datetime | None:
    text = text.strip()
    if _EPOCH_MS.fullmatch(text):
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))
    if not _DATE.fullmatch(text):
        return None
    when = _iso(text)
    if when is not None:
        return when if when.tzinfo else when.replace(tzinfo=UTC)
    # What Python does not read may end with the name of a zone.
    named = _ZONE.fullmatch(text)
    local = _iso(named[1]) if named else None
    if named is None or local is None or local.tzinfo is not None:
        return None
    try:
        return local.replace(tzinfo=read_zone(named[2]))
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.args[0]}") from None


def _iso(text: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(text)
        when.astimezone(UTC)  # a zone can push the first and the last day out of the calendar
    except (ValueError, OverflowError):
        return None
    return when


def _quoted(text: str) -> str:
    return f"'{shown(text, 80)}'"
