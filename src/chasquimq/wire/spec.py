"""A repeatable spec, as it lies in the hash of its key.

    98 | key | job_name | pattern | payload | limit | start_after_ms | end_before_ms | fired
    99 | ...                                                                         | missed_fires

    pattern        {"Every": [interval_ms]}  |  {"Cron": [expression, tz | nil]}
    payload        bin holding another bin, which holds the user's data: c4 06 c4 04 81a16101
    missed_fires   "FireOnce"  |  {"FireAll": [max_catchup]}      left out for Skip, the default
    fired          0; the live count is the hash field `fired`

A 1.3.0 scheduler drops a spec of ten elements. Newer ones write `missed_fires` always and a
tenth element `retry`; we read that, but keep the override in a hash field of its own, which older
schedulers do not see:

    retry          first 8 bytes of the spec's sha1 | the override, as in an envelope

The sha1 ties it to its spec: a program that does not know the field may write another beside it.
Read too: seven elements, maps for arrays, numbers for names.
"""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import msgspec

from chasquimq.errors import EncodeError, WireError
from chasquimq.job import RetryOverride
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec
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
_MARK_BYTES = 8
_MISSED_KINDS = dict(zip(_MISSED, ("skip", "fire-once", "fire-all"), strict=True))


def resolved_key(key: str | None, job_name: str, pattern: RepeatPattern) -> str:
    """The caller's key, or one made of name and pattern, word for word as they were given."""
    if key:
        return key
    if pattern.kind == "every":
        return f"{job_name}::every:{pattern.interval_ms}"
    return f"{job_name}::cron:{pattern.expression}:{'UTC' if pattern.tz is None else pattern.tz}"


def pack_spec(spec: StoredSpec) -> bytes:
    """Eight or nine elements; the override, if there is one, is `pack_override`'s affair."""
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


def pack_override(packed: bytes, retry: RetryOverride | None) -> bytes:
    """What lies in the field `retry` beside these bytes of a spec; empty: there is no override."""
    return b"" if retry is None else _mark(packed) + pack_retry(retry)


def _mark(packed: bytes) -> bytes:
    return sha1(packed, usedforsecurity=False).digest()[:_MARK_BYTES]


def _pack_pattern(pattern: RepeatPattern) -> dict[str, tuple[Any, ...]]:
    if pattern.kind == "every":
        return {"Every": (uint(pattern.interval_ms),)}
    if pattern.kind == "cron":
        return {"Cron": (pattern.expression, pattern.tz)}
    raise EncodeError(f"unknown pattern {pattern.kind!r:.80}")


def _pack_missed(missed: MissedFiresPolicy) -> str | dict[str, tuple[int]]:
    if missed.kind == "fire-all":
        return {"FireAll": (uint(missed.max_catchup, U32),)}
    if missed.kind == "fire-once":
        return "FireOnce"
    raise EncodeError(f"unknown missed_fires {missed.kind!r}")


def unpack_spec(data: bytes, retry: bytes | None = None) -> StoredSpec:
    """The spec in `data`; `retry` is the hash field of that name, and beats the tenth element."""
    if retry is not None and not (retry.startswith(_mark(data)) and retry[_MARK_BYTES:]):
        retry = None
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
            retry=override if retry is None else unpack_retry(retry[_MARK_BYTES:]),
        )
    except KeyError as error:
        raise WireError(f"not a repeatable spec: {error} is missing") from error
    except WireError as error:
        raise WireError(f"not a repeatable spec: {error.args[0]}") from error


def _read_pattern(value: Any) -> RepeatPattern:
    kind, content = variant(value, _PATTERNS)
    if kind == "Every":
        found = fields(content, ("interval_ms",), sizes=(1,))
        return RepeatPattern("every", interval_ms=uint(found["interval_ms"]))
    if kind == "Cron":
        found = fields(content, ("expression", "tz"), sizes=(2,))
        tz = found.get("tz")
        return RepeatPattern("cron", text(found["expression"]), None if tz is None else text(tz))
    raise WireError(f"unknown pattern {kind!r:.80}")


def _read_missed(value: Any) -> MissedFiresPolicy:
    kind, content = variant(value, _MISSED)
    if kind == "FireAll":
        found = fields(content, ("max_catchup",), sizes=(1,))
        return MissedFiresPolicy("fire-all", uint(found["max_catchup"], U32))
    if kind not in _MISSED_KINDS or content is not None:
        raise WireError(f"unknown missed_fires {kind!r:.80}")
    return MissedFiresPolicy(_MISSED_KINDS[kind])
