"""A row of the DLQ outside Redis: what `export_dlq` writes and `import_dlq` reads.

    jsonl     {"dlq_id":"17..-0","job_id":"a", ... ,"data":{"n":1},"fields":["ZA==","lKFh..", ...]}
    msgpack   8c | a6 dlq_id | af 17..-0 | ... | a6 fields | 9c | c4 01 64 | c4 .. | ...

JSON rows are lines, MessagePack rows follow each other without anything between them. `fields`
is the row itself: its fields and values, flat, in order, to the byte (in JSON as base64). All
else is for whoever looks at the file: `data` is the job's data where it can be read and is not
large, and in JSON bytes in it are {"base64": ..}. A reader takes `dlq_id` and `fields`, no more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from chasquimq.errors import EncodeError, WireError
from chasquimq.job import DeadEntry
from chasquimq.text import shown_json
from chasquimq.wire.dead import dead_job_id
from chasquimq.wire.envelope import unpack_envelope
from chasquimq.wire.payload import decode
from chasquimq.wire.scan import MAX_DEPTH, TRUNCATED, UNREADABLE, scan

MAX_ROW_BYTES = 64 * 1024 * 1024
MAX_SHOWN_BYTES = 256 * 1024  # of a job's data; beyond it `fields` alone has it

_U64 = 2**64 - 1
_to_json = msgspec.json.Encoder().encode
_to_msgpack = msgspec.msgpack.Encoder().encode


class Exported(msgspec.Struct, gc=False):
    """What is read of a row: the id it had, and its fields and values, flat."""

    dlq_id: str
    fields: list[bytes]

    def __post_init__(self) -> None:
        ms, _, seq = self.dlq_id.partition("-")
        for part in (ms, seq):
            if not (part.isascii() and part.isdigit() and len(part) <= 20 and int(part) <= _U64):
                raise ValueError(f"dlq_id {self.dlq_id!r:.80} is no id of an entry")
        if not self.fields or len(self.fields) % 2:
            raise ValueError("fields are names and values in turn, at least one of each")

    @property
    def mark(self) -> str:
        """Its name among all rows ever exported: ids are unique on one server only."""
        hashed = blake2b(digest_size=12)
        for part in self.fields:
            hashed.update(b"%d:%b" % (len(part), part))
        return f"{self.dlq_id}:{hashed.hexdigest()}"


def pack_json(entry: DeadEntry, fields: Sequence[bytes]) -> bytes:
    """A row as a line."""
    return _pack(entry, fields, _line)


def pack_msgpack(entry: DeadEntry, fields: Sequence[bytes]) -> bytes:
    return _pack(entry, fields, _readable)


def unpack_json(line: bytes | str) -> Exported:
    return _unpack(_from_json, line)


def unpack_msgpack(row: bytes | memoryview) -> Exported:
    return _unpack(_from_msgpack, row)


def row_end(data: bytes | memoryview) -> int | None:
    """Where the first MessagePack row ends; None if it does not end in here."""
    try:
        return scan(data, any_key=True)  # `unpack_msgpack` skips the data of a row
    except WireError as error:
        if error.args[0] == TRUNCATED:
            return None
        raise


# -- inside ----------------------------------------------------------------------------------------


def _pack(
    entry: DeadEntry, fields: Sequence[bytes], encode: Callable[[dict[str, Any]], bytes]
) -> bytes:
    told: dict[str, Any] = {
        "dlq_id": entry.dlq_id,
        "job_id": dead_job_id(entry),
        "name": entry.name,
        "reason": entry.reason,
        "detail": entry.detail,
        "attempt": entry.attempt,
        "error_type": entry.error_type,
        "error": entry.error,
        "failed_at_ms": entry.failed_at_ms,
        "source_id": entry.source_id,
    }
    row = {"fields": list(fields)}
    try:
        packed = encode(told | _data(entry.payload) | row)
    except (*UNREADABLE, WireError):  # the format has no form for this data
        packed = encode(told | row)
    if len(packed) > MAX_ROW_BYTES:
        raise EncodeError(
            f"dlq entry {entry.dlq_id} takes {len(packed)} bytes in an export, limit is "
            f"{MAX_ROW_BYTES}; leave it out by selecting others"
        )
    return packed


def _data(body: bytes) -> dict[str, Any]:
    try:
        payload = unpack_envelope(body).payload
        return {"data": decode(payload)} if len(payload) <= MAX_SHOWN_BYTES else {}
    except WireError:
        return {}


def _line(row: dict[str, Any]) -> bytes:
    """It may be shown in a terminal, and read by programs with other ideas of where a line ends."""
    return shown_json(_to_json(_json_able(row)).decode()).encode() + b"\n"


def _json_able(row: dict[str, Any]) -> dict[str, Any]:
    if "data" in row:
        row["data"] = _marked(row["data"])
    return row


def _marked(value: Any) -> Any:
    """Data in which bytes can be told from text."""
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    return [_marked(item) for item in value] if isinstance(value, list) else value


def _readable(row: dict[str, Any]) -> bytes:
    packed = _to_msgpack(row)
    # Data that is as deep as may be is too deep inside of a row: nobody could read it back.
    if len(packed) > MAX_DEPTH:
        scan(packed)
    return packed


_from_json = msgspec.json.Decoder(Exported).decode
_from_msgpack = msgspec.msgpack.Decoder(Exported).decode


def _unpack(decode: Callable[[Any], Exported], row: bytes | memoryview | str) -> Exported:
    try:
        return decode(row)
    except UNREADABLE as error:
        raise WireError(f"no exported row: {error}") from error
