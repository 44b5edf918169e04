"""When a spec fires: (spec, its score, now) -> the windows to fire, and its next score.

A window is a moment that the pattern names. Those that are due are on time, all of them, while
they are no older than a tick of the scheduler; a single one is, however old. The others were
missed, and the spec's policy says what becomes of them:

    skip        none fires
    fire-once   the oldest fires, for all of them
    fire-all    each fires, the oldest first, as many as `max_catchup` allows

Nothing here walks through windows that do not fire, so nothing takes longer after a long silence.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, tzinfo
from typing import NamedTuple

from chasquimq.config import MAX_MS
from chasquimq.errors import ConfigError
from chasquimq.policy.cron import read_cron
from chasquimq.repeat import RepeatPattern, StoredSpec

After = Callable[[int], int | None]  # the first window later than that; None: none will come


class Plan(NamedTuple):
    fires: tuple[int, ...]
    next_ms: int | None  # None: the spec is over
    left: int | None = None  # how many a catch-up that goes on at `next_ms` may still fire


def first_fire(
    pattern: RepeatPattern, now_ms: int, start_after_ms: int | None = None
) -> int | None:
    """The first fire of a spec that is written now; None: there will be none."""
    start_ms = max(now_ms, start_after_ms or 0)
    return windows(pattern, start_ms)(start_ms)


def upcoming(spec: StoredSpec, from_ms: int, count: int) -> list[int]:
    """The window at `from_ms` and those after it, as far as the spec goes."""
    found: list[int] = []
    after, at_ms = windows(spec.pattern, from_ms), _within(spec, from_ms)
    while at_ms is not None and len(found) < count:
        found.append(at_ms)
        at_ms = _within(spec, after(at_ms))
    return found


def take_up(spec: StoredSpec, stood_ms: int, now_ms: int) -> int | None:
    """The next fire of a spec that was put aside at `stood_ms`: what passed meanwhile is left
    out, and the cadence is kept."""
    if stood_ms > now_ms:
        return _within(spec, stood_ms)
    return _within(spec, windows(spec.pattern, stood_ms)(now_ms))


def plan(
    spec: StoredSpec,
    score_ms: int,
    now_ms: int,
    on_time_ms: int,
    most: int,
    left: int | None = None,
) -> Plan:
    """What is due at `now_ms`, at most `most` windows of it; `left`: of a catch-up that goes on."""
    first = _within(spec, score_ms)
    if first is None:
        return Plan((), None)
    after = windows(spec.pattern, score_ms)
    second = _within(spec, after(first))
    if second is None or second > now_ms:
        return Plan((first,), second)
    on_time_from = now_ms - on_time_ms
    fires: list[int] = []
    at_ms: int | None = first
    if first < on_time_from:
        may = _catch_up(spec) if left is None else left
        while at_ms is not None and at_ms < on_time_from and len(fires) < may:
            if len(fires) == most:
                return Plan(tuple(fires), at_ms, may - most)
            fires.append(at_ms)
            at_ms = _within(spec, after(at_ms))
        if at_ms is not None and at_ms < on_time_from:
            at_ms = _within(spec, after(on_time_from - 1))
    while at_ms is not None and at_ms <= now_ms and len(fires) < most:
        fires.append(at_ms)
        at_ms = _within(spec, after(at_ms))
    return Plan(tuple(fires), at_ms)


def _catch_up(spec: StoredSpec) -> int:
    """How many missed windows may fire."""
    missed = spec.missed_fires
    return {"skip": 0, "fire-once": 1}.get(missed.kind, missed.max_catchup or 0)


def _within(spec: StoredSpec, at_ms: int | None) -> int | None:
    """A window, unless the spec is over by then."""
    end_ms = spec.end_before_ms
    return None if at_ms is None or (end_ms is not None and at_ms > end_ms) else at_ms


def windows(pattern: RepeatPattern, anchor_ms: int) -> After:
    """The windows of a pattern; those of an interval are counted from the anchor."""
    if pattern.kind == "cron":
        return read_cron(pattern.expression or "", pattern.tz).after
    interval_ms = pattern.interval_ms or 0
    if pattern.kind != "every" or interval_ms < 1:
        raise ConfigError(f"no pattern that could fire: {pattern.to_dict()}")

    def after(at_ms: int) -> int | None:
        late_ms = max(at_ms - anchor_ms, 0)
        at_ms = anchor_ms + (late_ms // interval_ms + 1) * interval_ms
        return at_ms if at_ms < MAX_MS else None

    return after


def zone(pattern: RepeatPattern) -> tzinfo:
    """Where its fires are on the clock."""
    return read_cron(pattern.expression or "", pattern.tz).zone if pattern.kind == "cron" else UTC
