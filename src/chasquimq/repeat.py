"""The values of repeatable jobs: when one fires, what happens to fires nobody was there for, and
the spec that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chasquimq.config import MAX_MS, U32, check_least, nearest, refuse_unknown
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import BackoffSpec, RetryOverride

PAUSED_MS = MAX_MS  # the next fire of a spec that does not fire: no clock gets there


class RepeatPattern(msgspec.Struct, frozen=True):
    """When a spec fires: `RepeatPattern.cron("0 9 * * MON-FRI", tz="Europe/Berlin")`, or
    `RepeatPattern.every(60_000)`."""

    kind: str  # "cron" or "every"; "unreadable" where a listed spec could not be read
    expression: str | None = None
    tz: str | None = None
    interval_ms: int | None = None

    @classmethod
    def cron(cls, expression: str, *, tz: str | None = None) -> RepeatPattern:
        """The calendar, in a zone (an IANA name or an offset such as "+05:30"; None: UTC)."""
        if not isinstance(expression, str):
            raise ArgumentError(f"a cron expression is a str, got {type(expression).__name__}")
        if tz is not None and not isinstance(tz, str):
            raise ArgumentError(f"tz is the name of a time zone, got {type(tz).__name__}")
        return cls("cron", expression, tz)

    @classmethod
    def every(cls, interval_ms: int) -> RepeatPattern:
        """Every so many ms, the first time one interval after the spec was written."""
        check_least("interval_ms", interval_ms, 1)
        if interval_ms > MAX_MS:
            raise ConfigError(f"interval_ms must be at most {MAX_MS}, got {interval_ms}")
        return cls("every", interval_ms=interval_ms)

    @classmethod
    def read(cls, pattern: RepeatPattern | Mapping[str, Any]) -> RepeatPattern:
        """A pattern, or its dict form, looked at again: a constructor takes anything."""
        named = pattern.to_dict() if isinstance(pattern, RepeatPattern) else pattern
        if not isinstance(named, Mapping):
            raise ArgumentError(
                f"repeat is a RepeatPattern or its dict form, got {type(pattern).__name__}"
            )
        refuse_unknown(named, cls.__struct_fields__, "repeat")
        kind = named.get("kind")
        wanted = {"cron": "expression", "every": "interval_ms"}.get(str(kind))
        if wanted is None:
            raise ConfigError(f"unknown pattern kind {kind!r:.80}; known: cron, every")
        if named.get(wanted) is None:
            raise ConfigError(f"a pattern of kind {kind!r} needs {wanted!r}")
        if kind == "every":
            return cls.every(named["interval_ms"])
        return cls.cron(named["expression"], tz=named.get("tz"))

    def to_dict(self) -> dict[str, Any]:
        """The dict form that `add(repeat=...)` takes."""
        return _set_fields(self)


class MissedFiresPolicy(msgspec.Struct, frozen=True):
    """What becomes of fires that nobody was there for: of those later than a scheduler's tick."""

    kind: str = "skip"
    max_catchup: int | None = None

    @classmethod
    def skip(cls) -> MissedFiresPolicy:
        """Leave them out and go on with the next: the default."""
        return cls("skip")

    @classmethod
    def fire_once(cls) -> MissedFiresPolicy:
        """One job for all of them together."""
        return cls("fire-once")

    @classmethod
    def fire_all(cls, max_catchup: int) -> MissedFiresPolicy:
        """A job for each, the oldest first, at most so many."""
        check_least("max_catchup", max_catchup, 1)
        if max_catchup > U32:
            raise ConfigError(f"max_catchup must be at most {U32}, got {max_catchup}")
        return cls("fire-all", max_catchup)

    @classmethod
    def read(cls, policy: MissedFiresPolicy | Mapping[str, Any] | None) -> MissedFiresPolicy:
        """A policy, or its dict form, looked at again; None: skip."""
        if policy is None:
            return cls.skip()
        named = policy.to_dict() if isinstance(policy, MissedFiresPolicy) else policy
        if not isinstance(named, Mapping):
            raise ArgumentError(
                f"missed_fires is a MissedFiresPolicy or its dict form, got {type(policy).__name__}"
            )
        refuse_unknown(named, cls.__struct_fields__, "missed_fires")
        kind = str(named.get("kind"))
        if kind not in _KINDS:
            raise ConfigError(f"unknown missed_fires kind {kind!r:.80}; {nearest(kind, _KINDS)}")
        if kind != "fire-all":
            return cls(kind)
        if named.get("max_catchup") is None:
            raise ConfigError("missed_fires of kind 'fire-all' needs 'max_catchup'")
        return cls.fire_all(named["max_catchup"])

    def to_dict(self) -> dict[str, Any]:
        """The dict form that `add(missed_fires=...)` takes."""
        return _set_fields(self)


_KINDS = ("skip", "fire-once", "fire-all")


class StoredSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A spec at rest. `payload` is the user's data, encoded once."""

    key: str
    job_name: str
    pattern: RepeatPattern
    payload: bytes
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    fired: int = 0
    missed_fires: MissedFiresPolicy = MissedFiresPolicy()
    retry: RetryOverride | None = None


class RepeatableMeta(msgspec.Struct, frozen=True):
    """A spec as `get_repeatable_jobs` lists it.

    One that is paused, or that has a `problem`, does not fire: `next_fire_ms` is where it stood.
    """

    key: str
    job_name: str
    pattern: RepeatPattern
    next_fire_ms: int
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    missed_fires: MissedFiresPolicy | None = None  # None: skip
    fired: int = 0
    paused: bool = False
    problem: str | None = None  # why the scheduler has put it aside
    attempts: int | None = None
    backoff: BackoffSpec | None = None


def _set_fields(value: msgspec.Struct) -> dict[str, Any]:
    return {k: v for k, v in msgspec.structs.asdict(value).items() if v is not None}
