"""A job as it was seen in one place of a queue, and how each place's rows are read. No I/O."""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import DeadEntry, RetryOverride

State = Literal["waiting", "running", "delayed", "dead"]

Row = tuple[bytes, list[bytes] | None]  # an entry's id and its fields; None: its body is gone

_ENTRY_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_ULID = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_ALPHABET = {digit: value for value, digit in enumerate("0123456789ABCDEFGHJKMNPQRSTVWXYZ")}
_STAMP = 10  # characters of an id that tell the time


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a job is. What does not belong to its state is None."""

    state: State
    job_id: str | None = None  # None: it cannot be read
    name: str = ""
    entry_id: str | None = None  # of the stream, or of the DLQ
    since_ms: int | None = None  # it has been there since then
    created_ms: int | None = None
    attempt: int | None = None  # runs that have failed
    retry: RetryOverride | None = None
    envelope: bytes = b""
    unique_s: int | None = None  # its id is unique until it is done, for so long at the most
    trouble: str | None = None  # why it cannot be read
    # running
    consumer: str | None = None
    idle_ms: int | None = None  # since it was delivered, or its lease renewed
    deliveries: int | None = None
    # delayed
    due_ms: int | None = None
    indexed: bool | None = None  # it can be cancelled by its id; retries cannot
    # dead
    reason: str | None = None
    detail: str | None = None
    error_type: str | None = None
    error: str | None = None
    source_id: str | None = None  # the entry it had in the stream

    def to_dict(self) -> dict[str, Any]:
        """What is known of it; the envelope's data are the reader's affair."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        size = len(told.pop("envelope"))
        left = {name: value for name, value in told.items() if value is not None}
        return left | ({"envelope_bytes": size and len(self.envelope)} if self.envelope else {})


def is_entry_id(text: str) -> bool:
    """Whether Redis would take it for one: parts of more than 64 bits are an error there."""
    parts = _ENTRY_ID.fullmatch(text)
    return parts is not None and all(int(part) < 2**64 for part in parts.groups())


def entry_ms(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])


def made_of(row: Row) -> int:
    """When the job of an entry was made, as far as the entry tells; else when it was added."""
    seen = in_stream(row)
    by_id = made_ms(seen.job_id) if seen.job_id is not None else None
    return by_id or seen.created_ms or seen.since_ms or 0


def made_ms(job_id: str) -> int | None:
    """When an id was made, where it tells: one that was minted, or that of a spec's fire."""
    end = job_id.rpartition("@")[2]
    if _ULID.fullmatch(end):
        ms = 0
        for digit in end[:_STAMP]:
            ms = ms * 32 + _ALPHABET[digit]
        return ms
    is_fire = end != job_id and end.isascii() and end.isdigit() and len(end) <= 16
    return int(end) if is_fire else None


def in_stream(row: Row, state: State = "waiting") -> Sighting:
    """A row of the stream."""
    entry_id = row[0].decode(errors="replace")
    since_ms = entry_ms(entry_id)
    split = "its body is gone" if row[1] is None else wire.split_entry(row[1])
    if isinstance(split, str):
        return Sighting(state=state, entry_id=entry_id, since_ms=since_ms, trouble=split)
    body, name = split
    seen = _read(Sighting(state=state, entry_id=entry_id, since_ms=since_ms), body, name)
    limit = wire.unique_hint(row[1])
    return msgspec.structs.replace(seen, unique_s=int(limit)) if limit else seen


def in_delayed(member: bytes, score: float, indexed: bool | None = None) -> Sighting:
    seen = Sighting(state="delayed", due_ms=due_ms(score), indexed=indexed)
    try:
        name, body = wire.split_member(member)
    except WireError as error:
        return msgspec.structs.replace(seen, trouble=error.args[0], envelope=member)
    return _read(seen, body, name)


def in_dlq(row: Row) -> Sighting:
    dead: DeadEntry = wire.unpack_dead(row[0], row[1] or [])
    at_ms = dead.failed_at_ms
    seen = Sighting(
        state="dead",
        entry_id=dead.dlq_id,
        since_ms=entry_ms(dead.dlq_id) if at_ms is None else at_ms,
        reason=dead.reason,
        detail=dead.detail,
        error_type=dead.error_type,
        error=dead.error,
        source_id=dead.source_id or None,
    )
    seen = _read(seen, dead.payload, dead.name.encode())
    if dead.job_id is not None and seen.job_id is None:
        seen = msgspec.structs.replace(seen, job_id=dead.job_id)
    # Our own rows tell how many runs there were; those of the reference the last run's number.
    runs = dead.attempt if dead.attempt is not None else _after(seen.attempt)
    return msgspec.structs.replace(seen, attempt=runs)


def due_ms(score: float) -> int | None:
    """A score as a moment; other programs may write other numbers."""
    return int(score) if 0 <= score < 2**63 else None


def _after(attempt: int | None) -> int | None:
    return None if attempt is None else attempt + 1


def _read(seen: Sighting, body: bytes, name: bytes) -> Sighting:
    told = msgspec.structs.replace(seen, name=wire.decode_name(name), envelope=body)
    try:
        envelope = wire.unpack_envelope(body)
    except WireError as error:
        return msgspec.structs.replace(told, trouble=error.args[0])
    return msgspec.structs.replace(
        told,
        job_id=envelope.id,
        created_ms=envelope.created_at_ms,
        attempt=envelope.attempt,
        retry=envelope.retry,
    )
