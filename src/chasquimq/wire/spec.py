"""A repeatable spec, as it lies in the hash of its key.

    98 | key | job_name | pattern | payload | limit | start_after_ms | end_before_ms | fired
    99 | ...                                                                         | missed_fires

    pattern        {"Every": [interval_ms]}  |  {"Cron": [expression, tz | nil]}
    payload        bin holding another bin, which holds the user's data: c4 06 c4 04 81a16101
    missed_fires   "FireOnce"  |  {"FireAll": [max_catchup]}      left out for Skip, the default
    fired          0; the live count is the hash field `fired`

A 1.3.0 scheduler drops a spec of ten elements. Newer ones write `missed_fires` always and a
tenth element `retry`; we read that, but keep the override in a hash field of its own, `retry`,
which older schedulers do not see. Read too: seven elements, maps for arrays, numbers for names.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chasquimq.errors import EncodeError, WireError
from chasquimq.job import RetryOverride
from chasquimq.wire.envelope import bin_header, pack_retry, read_retry, unpack_retry
from chasquimq.wire.scan import read_value
from chasquimq.wire.slots import U32, blob, fields, maybe_uint, text, uint, variant

_encode = msgspec.msgpack.Encoder().encode

_FIELDS = (
    "key",
    "job_name",
    "pattern",
    "payload",
    "limit",
    "start_after_ms",
    "end_before_ms",
    "fired",
    "missed_fires",
    "retry",
)
# The order of the variants is part of the wire: a number may stand for a name.
_PATTERNS = ("Cron", "Every")
_MISSED = ("Skip", "FireOnce", "FireAll")
_MISSED_KINDS = dict(zip(_MISSED, ("skip", "fire-once", "fire-all"), strict=True))


class Every(msgspec.Struct, frozen=True):
    interval_ms: int


class Cron(msgspec.Struct, frozen=True):
    expression: str
    tz: str | None = None


class MissedFires(msgspec.Struct, frozen=True):
    """What to do about fires nobody was there for: "skip", "fire-once" or "fire-all"."""

    kind: str = "skip"
    max_catchup: int | None = None


class StoredSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A spec at rest. `payload` is the user's data, encoded once."""

    key: str
    job_name: str
    pattern: Every | Cron
    payload: bytes
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    fired: int = 0
    missed_fires: MissedFires = MissedFires()
    retry: RetryOverride | None = None


def resolved_key(key: str | None, job_name: str, pattern: Every | Cron) -> str:
    """The caller's key, or one made of name and pattern, word for word as they were given."""
    if key:
        return key
    if isinstance(pattern, Every):
        return f"{job_name}::every:{pattern.interval_ms}"
    return f"{job_name}::cron:{pattern.expression}:{'UTC' if pattern.tz is None else pattern.tz}"


def pack_spec(spec: StoredSpec) -> bytes:
    """Eight or nine elements; the override, if there is one, is `pack_spec_fields`' affair."""
    try:
        slots: tuple[Any, ...] = (
            spec.key,
            spec.job_name,
            _pack_pattern(spec.pattern),
            bin_header(len(spec.payload)) + spec.payload,
            maybe_uint(spec.limit),
            maybe_uint(spec.start_after_ms),
            maybe_uint(spec.end_before_ms),
            uint(spec.fired),
        )
        if spec.missed_fires.kind != "skip":
            slots += (_pack_missed(spec.missed_fires),)
        return _encode(slots)
    except (WireError, ValueError, TypeError) as error:
        raise EncodeError(f"no spec holds {spec.key!r:.80}: {error.args[0]}") from error


def pack_spec_fields(spec: StoredSpec) -> list[bytes]:
    """What a spec puts into its hash, flat: `spec`, and `retry` (empty: no override)."""
    # Always both: an upsert without an override must wipe the one that was there.
    retry = b"" if spec.retry is None else pack_retry(spec.retry)
    return [b"spec", pack_spec(spec), b"retry", retry]


def _pack_pattern(pattern: Every | Cron) -> dict[str, tuple[Any, ...]]:
    if isinstance(pattern, Every):
        return {"Every": (uint(pattern.interval_ms),)}
    return {"Cron": (pattern.expression, pattern.tz)}


def _pack_missed(missed: MissedFires) -> str | dict[str, tuple[int]]:
    if missed.kind == "fire-all":
        return {"FireAll": (uint(missed.max_catchup, U32),)}
    if missed.kind == "fire-once":
        return "FireOnce"
    raise EncodeError(f"unknown missed_fires {missed.kind!r}")


def unpack_spec(data: bytes, retry: bytes | None = None) -> StoredSpec:
    """The spec in `data`; `retry` is the hash field of that name, and beats the tenth element."""
    try:
        found = fields(read_value(data), _FIELDS, sizes=range(7, 11))
        override = read_retry(found.get("retry"))
        return StoredSpec(
            key=text(found["key"]),
            job_name=text(found["job_name"]),
            pattern=_read_pattern(found["pattern"]),
            payload=blob(read_value(blob(found["payload"]))),
            limit=maybe_uint(found.get("limit")),
            start_after_ms=maybe_uint(found.get("start_after_ms")),
            end_before_ms=maybe_uint(found.get("end_before_ms")),
            fired=uint(found.get("fired", 0)),
            missed_fires=_read_missed(found.get("missed_fires", "Skip")),
            retry=unpack_retry(retry) if retry else override,
        )
    except KeyError as error:
        raise WireError(f"not a repeatable spec: {error} is missing") from error
    except WireError as error:
        raise WireError(f"not a repeatable spec: {error.args[0]}") from error


def _read_pattern(value: Any) -> Every | Cron:
    kind, content = variant(value, _PATTERNS)
    if kind == "Every":
        return Every(uint(fields(content, ("interval_ms",), sizes=(1,))["interval_ms"]))
    if kind == "Cron":
        found = fields(content, ("expression", "tz"), sizes=(2,))
        tz = found.get("tz")
        return Cron(text(found["expression"]), None if tz is None else text(tz))
    raise WireError(f"unknown pattern {kind!r:.80}")


def _read_missed(value: Any) -> MissedFires:
    kind, content = variant(value, _MISSED)
    if kind == "FireAll":
        found = fields(content, ("max_catchup",), sizes=(1,))
        return MissedFires("fire-all", uint(found["max_catchup"], U32))
    if kind not in _MISSED_KINDS or content is not None:
        raise WireError(f"unknown missed_fires {kind!r:.80}")
    return MissedFires(_MISSED_KINDS[kind])
