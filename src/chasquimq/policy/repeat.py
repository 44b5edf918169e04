"""When a spec fires: (spec, its score, now) -> the windows to fire, and its next score. Pure.

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
    left: int | None = None  # how many missed windows a plan that was cut may still fire


def first_fire(
    pattern: RepeatPattern, now_ms: int, start_after_ms: int | None = None
) -> int | None:
    """The first fire of a spec that is written now; None: there will be none."""
    start_ms = max(now_ms, start_after_ms or 0)
    return windows(pattern, start_ms)(start_ms)


def upcoming(spec: StoredSpec, from_ms: int, count: int) -> list[int]:
    """The window at `from_ms` and those after it, as far as the spec goes."""
    found: list[int] = []
    after, at_ms = _windows_of(spec, from_ms), _unless_over(spec, from_ms)
    while at_ms is not None and len(found) < count:
        found.append(at_ms)
        at_ms = after(at_ms)
    return found


def take_up(spec: StoredSpec, stood_ms: int, now_ms: int) -> int | None:
    """The next fire of a spec that was put aside when its next fire was `stood_ms`: what passed
    meanwhile is left out, and the cadence is kept."""
    if stood_ms > now_ms:
        return _unless_over(spec, stood_ms)
    return _windows_of(spec, stood_ms)(now_ms)


def plan(
    spec: StoredSpec,
    score_ms: int,
    now_ms: int,
    on_time_ms: int,
    most: int,
    left: int | None = None,
) -> Plan:
    """What is due at `now_ms`, cut after `most` windows. A plan that was cut goes on in the next
    call, from its `next_ms` with its `left`; at the same `now_ms` the two are one uncut plan."""
    first = _unless_over(spec, score_ms)
    if first is None or first > now_ms:
        return Plan((), first)
    after = _windows_of(spec, score_ms)
    second = after(first)
    if second is None or second > now_ms:
        return Plan((first,), second)
    on_time_from = now_ms - on_time_ms
    may_catch_up = _catch_up(spec, left)
    fires: list[int] = []
    at_ms: int | None = first
    while at_ms is not None and at_ms <= now_ms:
        missed = at_ms < on_time_from  # as all before it, so `fires` are those caught up
        if missed and len(fires) >= may_catch_up:
            at_ms = after(on_time_from - 1)
        elif len(fires) >= most:
            return Plan(tuple(fires), at_ms, may_catch_up - len(fires) if missed else None)
        else:
            fires.append(at_ms)
            at_ms = after(at_ms)
    return Plan(tuple(fires), at_ms)


def _catch_up(spec: StoredSpec, left: int | None) -> int:
    """How many missed windows may fire: no more than the policy that the spec has by now says,
    whatever was left when the catch-up began."""
    policy = spec.missed_fires
    if policy.kind == "skip":
        return 0
    allowed = 1 if policy.kind == "fire-once" else policy.max_catchup or 0
    return allowed if left is None else min(allowed, left)


def windows(pattern: RepeatPattern, anchor_ms: int) -> After:
    """The windows of a pattern; those of an interval are counted from the anchor."""
    if pattern.kind == "cron":
        return read_cron(pattern.expression or "", pattern.tz).after
    interval_ms = pattern.interval_ms or 0
    if pattern.kind != "every" or interval_ms < 1:
        raise ConfigError(f"no pattern that could fire: {pattern!r:.200}")

    def after(at_ms: int) -> int | None:
        passed = (at_ms - anchor_ms) // interval_ms
        next_ms = anchor_ms + (passed + 1) * interval_ms
        return next_ms if next_ms < MAX_MS else None

    return after


def _windows_of(spec: StoredSpec, anchor_ms: int) -> After:
    """The windows of a spec's pattern, as far as the spec goes."""
    after = windows(spec.pattern, anchor_ms)
    return lambda at_ms: _unless_over(spec, after(at_ms))


def _unless_over(spec: StoredSpec, at_ms: int | None) -> int | None:
    """A window, unless the spec is over by then."""
    end_ms = spec.end_before_ms
    return None if at_ms is None or (end_ms is not None and at_ms > end_ms) else at_ms


def zone(pattern: RepeatPattern) -> tzinfo:
    """On which clock its fires are shown."""
    return read_cron(pattern.expression or "", pattern.tz).zone if pattern.kind == "cron" else UTC
