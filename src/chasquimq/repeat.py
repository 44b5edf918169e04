"""The values of repeatable jobs: when one fires, what happens to fires nobody was there for, and
the spec that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chasquimq.config import MAX_MS, U32, check_within, nearest, refuse_unknown
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
        check_within("interval_ms", interval_ms, 1, MAX_MS)
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
        kind = str(named.get("kind"))
        wanted = {"cron": "expression", "every": "interval_ms"}.get(kind)
        if wanted is None:
            raise _unknown_pattern(kind)
        if named.get(wanted) is None:
            raise ConfigError(f"a pattern of kind {kind!r} needs {wanted!r}")
        if kind == "every":
            return cls.every(named["interval_ms"])
        return cls.cron(named["expression"], tz=named.get("tz"))

    def to_dict(self) -> dict[str, Any]:
        """The dict form that `add(repeat=...)` takes."""
        if self.kind == "every":
            return {"kind": "every", "interval_ms": self.interval_ms}
        if self.kind == "cron":
            zone = {} if self.tz is None else {"tz": self.tz}
            return {"kind": "cron", "expression": self.expression, **zone}
        if self.kind == "unreadable":
            return {"kind": "unreadable"}
        raise _unknown_pattern(self.kind)


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
        check_within("max_catchup", max_catchup, 1, U32)
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
            raise _unknown_missed(kind)
        if kind != "fire-all":
            return cls(kind)
        if named.get("max_catchup") is None:
            raise ConfigError("missed_fires of kind 'fire-all' needs 'max_catchup'")
        return cls.fire_all(named["max_catchup"])

    def to_dict(self) -> dict[str, Any]:
        """The dict form that `add(missed_fires=...)` takes."""
        if self.kind == "fire-all":
            return {"kind": "fire-all", "max_catchup": self.max_catchup}
        if self.kind in _KINDS:
            return {"kind": self.kind}
        raise _unknown_missed(self.kind)


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


class _Listed:
    """Where a spec was listed: its score and key as Redis has them. A slot and no field of
    RepeatableMeta: not shown, compared, copied or encoded."""

    __slots__ = ("_place",)
    _place: tuple[bytes, bytes]


class RepeatableMeta(_Listed, msgspec.Struct, frozen=True):
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
    problem: str | None = None  # why it cannot be fired
    attempts: int | None = None
    backoff: BackoffSpec | None = None

    def to_dict(self) -> dict[str, Any]:
        """All of it as a dict, as the native Producer lists specs."""
        zone = {"tz": None} if self.pattern.kind == "cron" else {}  # there, even if there is none
        return msgspec.structs.asdict(self) | {
            "pattern": zone | self.pattern.to_dict(),
            "missed_fires": self.missed_fires and self.missed_fires.to_dict(),
            "backoff": self.backoff and self.backoff.to_dict(),
        }


def listed_at(meta: RepeatableMeta, score: bytes, key: bytes) -> RepeatableMeta:
    """The same; the next page goes on behind this place."""
    msgspec.structs.force_setattr(meta, "_place", (score, key))
    return meta


def place_of(meta: RepeatableMeta) -> tuple[bytes, bytes]:
    """Where it was listed. One that was copied, or comes from elsewhere, does not know it."""
    aside = meta.paused or meta.problem is not None
    score = b"%d" % (PAUSED_MS if aside else meta.next_fire_ms)
    place: tuple[bytes, bytes] = getattr(meta, "_place", (score, meta.key.encode()))
    return place


def _unknown_pattern(kind: str) -> ConfigError:
    return ConfigError(f"unknown pattern kind {kind!r:.80}; known: cron, every")


def _unknown_missed(kind: str) -> ConfigError:
    return ConfigError(f"unknown missed_fires kind {kind!r:.80}; {nearest(kind, _KINDS)}")
