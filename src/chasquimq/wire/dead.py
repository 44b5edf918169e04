"""A row of the DLQ: the job as it was, and why it lies there.

    d <envelope> [n <name>] source_id <entry id> reason <word> [detail <text>]       the reference's
    [job_id <id>] [attempt <n>] [error_type <class>] [error <text>] [u <limit s>]             ours
    [failed_at_ms <ms>]

Every reader ignores fields it does not know, so ours follow the reference's. What a handler
said is cut to size: a dead job must not weigh more than a live one. `failed_at_ms` comes last
because the script that buries a job appends it, by the clock of Redis.
"""

from __future__ import annotations

from typing import Any

from chasquimq.errors import WireError
from chasquimq.job import DeadEntry
from chasquimq.wire.entry import decode_name, pairs
from chasquimq.wire.envelope import unpack_envelope

MAX_ERROR_TYPE_BYTES = 256
MAX_ERROR_BYTES = 4096


def cut(text: str, limit: int) -> bytes:
    """At most `limit` bytes of UTF-8, never half a character. Lone surrogates are spelled out."""
    # A character has at least one byte: what is cut here could not have fitted.
    raw = text[:limit].encode(errors="backslashreplace")
    if len(raw) <= limit:
        return raw
    while limit and raw[limit] & 0xC0 == 0x80:
        limit -= 1
    return raw[:limit]


def pack_dead(
    envelope: bytes,
    name: bytes,
    source_id: bytes,
    reason: str,
    *,
    detail: str | None = None,
    job_id: str | None = None,
    attempt: int | None = None,
    error_type: str | None = None,
    error: str | None = None,
    unique: bytes = b"",
    failed_at_ms: int | None = None,
) -> list[bytes]:
    """The fields of a dead entry, flat and in order; what is None or empty is left out."""
    fields = [b"d", envelope]
    if name:
        fields += (b"n", name)
    fields += (b"source_id", source_id, b"reason", reason.encode())
    if detail:
        fields += (b"detail", cut(detail, MAX_ERROR_BYTES))
    if job_id:
        fields += (b"job_id", job_id.encode(errors="backslashreplace"))
    if attempt is not None:
        fields += (b"attempt", b"%d" % attempt)
    if error_type:
        fields += (b"error_type", cut(error_type, MAX_ERROR_TYPE_BYTES))
    if error:
        fields += (b"error", cut(error, MAX_ERROR_BYTES))
    if unique:
        fields += (b"u", unique)
    if failed_at_ms is not None:
        fields += (b"failed_at_ms", b"%d" % failed_at_ms)
    return fields


def unpack_dead(dlq_id: bytes, fields: Any) -> DeadEntry:
    """A dead entry, whatever it looks like: looking at the DLQ must always be possible."""
    if not isinstance(fields, (list, tuple)):
        raise WireError(f"not a dead entry: {type(fields).__name__} where fields belong")
    found = {field: value for field, value in pairs(fields) if type(value) is bytes}

    def text(field: bytes) -> str | None:
        value = found.get(field)
        return None if value is None else value.decode(errors="replace")

    return DeadEntry(
        dlq_id=dlq_id.decode(errors="replace"),
        payload=found.get(b"d", b""),
        name=decode_name(found.get(b"n", b"")),
        source_id=text(b"source_id") or "",
        reason=text(b"reason") or "",
        detail=text(b"detail"),
        job_id=text(b"job_id"),
        attempt=to_int(found.get(b"attempt")),
        error_type=text(b"error_type"),
        error=text(b"error"),
        failed_at_ms=to_int(found.get(b"failed_at_ms")),
    )


def dead_job_id(entry: DeadEntry) -> str | None:
    """The id of the job in it: rows of the reference have it in the envelope only."""
    if entry.job_id is not None:
        return entry.job_id
    try:
        return unpack_envelope(entry.payload).id
    except WireError:
        return None


def to_int(value: bytes | None) -> int | None:
    """A decimal number, or None. `int` alone would take spaces, underscores and signs too."""
    if value is None or not value.isdigit() or len(value) > 20:
        return None
    return int(value)
