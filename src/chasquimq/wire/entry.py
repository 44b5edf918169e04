"""A row of the stream: the envelope, and the name beside it.

    d <envelope>  n <name>      the usual shape
    d <envelope>                a job without a name
    d <envelope>  n <name>  u <limit s>     its id is unique until it is done
    d <envelope>  n <name>  t <carrier>     what a tracer sends along; both, u comes first

Read by field name: the first `d` and the first `n` win, in any order, other fields are
ignored. A name that is no UTF-8 counts as none; the job still runs. The checks at the end are
for what *we* are asked to write; a foreign job named otherwise is served all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from chasquimq.errors import ConfigError, NameTooLongError
from chasquimq.trace import MAX_CARRIER_BYTES

MAX_NAME_BYTES = 256
MAX_JOB_ID_BYTES = 1024

# The reference's own words: they stand in the `detail` field of a malformed dead entry.
_NO_ARRAY = "fields not an array"
_NO_BODY = "missing or non-bytes payload field"


def join_entry(
    envelope: bytes, name: bytes, unique: bytes = b"", carrier: bytes = b""
) -> list[bytes]:
    fields = [b"d", envelope]
    # Always six or more with an extra, so that a reader need not look at shorter ones.
    if name or unique or carrier:
        fields += (b"n", name)
    if unique:
        fields += (b"u", unique)
    if carrier:
        fields += (b"t", carrier)
    return fields


def unique_hint(fields: Any) -> bytes:
    """The limit in seconds of an entry whose id is unique until it is done; b"" if it is not."""
    limit = dict(pairs(fields)).get(b"u")
    if type(limit) is bytes and limit.isdigit() and len(limit) < 12 and int(limit) > 0:
        return limit
    return b""


def carrier_of(fields: Any) -> bytes:
    """What a tracer sent along, as it stands there; b"" for nothing, and for what is too long."""
    carrier = dict(pairs(fields)).get(b"t")
    if type(carrier) is bytes and len(carrier) <= MAX_CARRIER_BYTES:
        return carrier
    return b""


def split_entry(fields: Any) -> tuple[bytes, bytes] | str:
    """(envelope, name) of an entry's flat field list, or why it is malformed."""
    if type(fields) is list and len(fields) == 4 and fields[0] == b"d" and fields[2] == b"n":
        _, body, _, name = fields
        if type(body) is bytes and type(name) is bytes:
            return body, name
    elif type(fields) is list and len(fields) == 2 and fields[0] == b"d":
        if type(fields[1]) is bytes:
            return fields[1], b""
    elif not isinstance(fields, (list, tuple)):
        return _NO_ARRAY
    found = dict(pairs(fields))
    body, name = found.get(b"d"), found.get(b"n")
    if type(body) is not bytes:
        return _NO_BODY
    return body, name if type(name) is bytes else b""


def pairs(fields: Any) -> Iterator[tuple[Any, Any]]:
    """Field and value of a flat list, last to first, so that a dict of them keeps the first.

    A field without a value, at the end of an odd list, is left out.
    """
    for at in range(len(fields) // 2 * 2 - 2, -1, -2):
        if type(fields[at]) is bytes:
            yield fields[at], fields[at + 1]


def decode_name(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return ""


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_name(name: str) -> bytes:
    """A job's name as bytes, or ConfigError. The empty name is the name of unnamed jobs."""
    if not isinstance(name, str):
        raise ConfigError(f"a job name is a str, got {type(name).__name__}: {name!r:.80}")
    # Printable text has neither control characters nor surrogates, and asking is cheap.
    if not name.isprintable() and _CONTROL.search(name):
        raise ConfigError(f"job name {name[:80]!r} holds control characters; leave them out")
    raw = _to_bytes("job name", name)
    if len(raw) > MAX_NAME_BYTES:
        raise NameTooLongError(name, MAX_NAME_BYTES)
    return raw


def check_job_id(job_id: str) -> bytes:
    """A caller's job id as bytes, or ConfigError."""
    if not isinstance(job_id, str):
        raise ConfigError(f"a job id is a str, got {type(job_id).__name__}: {job_id!r:.80}")
    if not job_id or job_id.isspace():
        raise ConfigError(f"job id {job_id[:80]!r} is blank; leave it out to get a new one")
    raw = _to_bytes("job id", job_id)
    if len(raw) > MAX_JOB_ID_BYTES:
        raise ConfigError(
            f"job id is {len(raw)} bytes, limit is {MAX_JOB_ID_BYTES}: {job_id[:40]!r}…; "
            "use a hash of it"
        )
    return raw


def _to_bytes(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} {text[:80]!r} is no valid text: {error.reason}") from error
