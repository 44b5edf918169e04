"""A row of the events stream. All values are text.

    e <kind>  id <job id>  ts <ms>  [n <name>]  <extras>

    waiting           -                            ours: `n` too
    active            attempt                      ours: created_ms
    completed         attempt duration_us
    failed            attempt reason duration_us
    retry-scheduled   attempt backoff_ms
    dlq               attempt reason
    delayed           delay_ms
    drained           -                            `id` is there, and empty

`attempt` counts from 1 here. Extras of the reference come in this order, ours behind them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from chasquimq.errors import WireError
from chasquimq.wire.dead import MAX_ERROR_BYTES, cut, to_int
from chasquimq.wire.entry import pairs

_EXTRAS = {
    "active": ("attempt",),
    "completed": ("attempt", "duration_us"),
    "failed": ("attempt", "reason", "duration_us"),
    "retry-scheduled": ("attempt", "backoff_ms"),
    "dlq": ("attempt", "reason"),
    "delayed": ("delay_ms",),
}
_NUMBERS = frozenset((b"attempt", b"backoff_ms", b"created_ms", b"delay_ms", b"duration_us", b"ts"))


class EventRow(msgspec.Struct, frozen=True):
    """One event as read. `job_id` is None where the event concerns no job, or an unreadable one."""

    name: str
    job_id: str | None
    job_name: str
    fields: dict[str, int | str]


def pack_event(
    kind: str,
    job_id: str | bytes,
    ts_ms: int,
    name: str | bytes = b"",
    extras: Mapping[str, int | str | None] | None = None,
) -> list[bytes]:
    """The fields of an event, flat and in order; extras that are None are left out."""
    fields = [b"e", kind.encode(), b"id", _raw(job_id), b"ts", b"%d" % ts_ms]
    if name:
        fields += (b"n", _raw(name))
    extras = extras or {}
    known = [extra for extra in _EXTRAS.get(kind, ()) if extra in extras]
    for extra in (*known, *(extra for extra in extras if extra not in known)):
        value = extras[extra]
        if value is not None:
            text = cut(value, MAX_ERROR_BYTES) if isinstance(value, str) else b"%d" % value
            fields += (extra.encode(), text)
    return fields


def _raw(value: bytes | str) -> bytes:
    # Never cut: readers look jobs up by these.
    return value if isinstance(value, bytes) else value.encode(errors="backslashreplace")


def unpack_event(fields: Any) -> EventRow:
    if not isinstance(fields, (list, tuple)):
        raise WireError(f"not an event: {type(fields).__name__} where fields belong")
    found = {field: value for field, value in pairs(fields) if type(value) is bytes}
    kind, job_id, name = (found.pop(field, b"") for field in (b"e", b"id", b"n"))
    rest: dict[str, int | str] = {}
    for field, value in reversed(found.items()):
        number = to_int(value) if field in _NUMBERS else None
        rest[_text(field)] = _text(value) if number is None else number
    return EventRow(_text(kind), _text(job_id) or None, _text(name), rest)


def _text(value: bytes) -> str:
    return value.decode(errors="replace")
