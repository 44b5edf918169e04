"""The `d` field: one job as a positional MessagePack array.

    94 | ba 01M7..ZJ | c4 07 81a4..2a | cf 000001a1e0bb2832 | 00                 the usual shape
    95 | ba 01M7..ZJ | c4 07 81a4..2a | cf 000001a1e0bb2832 | 00 | 92 03 c0      with an override
         id: str       payload: bin     created_at_ms         attempt  retry

    retry    [max_attempts | nil, backoff | nil]
    backoff  [kind, delay_ms, max_delay_ms | nil, multiplier | nil, jitter_ms | nil]

`payload` is the user's data, already encoded. Numbers take their smallest unsigned form, the
multiplier is a 64-bit float. A reader finds a field by its position alone, so slots never move
and new ones go last. The job's name is not here: it travels beside the envelope (field `n`).

Readers take more than is written: three slots (attempt 0), maps by field name, wider headers,
ids as bin, payloads as arrays of numbers, and anything at all behind the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Annotated, Any

import msgspec

from chasquimq.errors import EncodeError, WireError
from chasquimq.job import BackoffSpec, Envelope, RetryOverride
from chasquimq.wire.scan import read_value
from chasquimq.wire.slots import U32, blob, fields, maybe_float, maybe_uint, text, uint, variant

_encode = msgspec.msgpack.Encoder().encode

_KINDS = ("fixed", "exponential")
_FOUR_SLOTS = 0x94
_FIVE_SLOTS = 0x95


def bin_header(size: int) -> bytes:
    if size < 256:
        return b"\xc4%c" % size
    if size < 65536:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


def str_header(size: int) -> bytes:
    if size < 32:
        return b"%c" % (0xA0 + size)
    if size < 256:
        return b"\xd9%c" % size
    if size < 65536:
        return b"\xda" + size.to_bytes(2, "big")
    return b"\xdb" + size.to_bytes(4, "big")


def pack_envelope(envelope: Envelope) -> bytes:
    created_at_ms, attempt = envelope.created_at_ms, envelope.attempt
    if not (0 <= attempt <= U32 and created_at_ms >= 0):
        raise EncodeError(f"no envelope holds attempt {attempt}, created_at_ms {created_at_ms}")
    slots: tuple[Any, ...] = (envelope.id, envelope.payload, created_at_ms, attempt)
    # Consumers older than the fifth slot reject it, so it is written only when it says something.
    if envelope.retry is not None:
        slots += (_retry_slots(envelope.retry),)
    try:
        return _encode(slots)
    except (ValueError, TypeError, OverflowError) as error:
        raise EncodeError(f"no envelope holds job {envelope.id!r:.80}: {error}") from error


def pack_retry(retry: RetryOverride) -> bytes:
    """The override alone, as it stands in the fifth slot."""
    return _encode(_retry_slots(retry))


def _retry_slots(retry: RetryOverride) -> tuple[Any, ...]:
    backoff = retry.backoff
    try:
        max_attempts = maybe_uint(retry.max_attempts, U32)
        if backoff is None:
            return (max_attempts, None)
        spec = (
            # A kind nobody knows behaves as exponential; the reference writes it like this.
            backoff.kind if backoff.kind in _KINDS else "unknown",
            uint(backoff.delay_ms),
            maybe_uint(backoff.max_delay_ms),
            maybe_float(backoff.multiplier),
            maybe_uint(backoff.jitter_ms),
        )
    except WireError as error:
        raise EncodeError(f"no envelope holds {retry}: {error.args[0]}") from error
    return (max_attempts, spec)


_u32 = Annotated[int, msgspec.Meta(ge=0, le=U32)]
_u64 = Annotated[int, msgspec.Meta(ge=0)]


class _Backoff(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    kind: str
    delay_ms: _u64
    max_delay_ms: _u64 | None
    multiplier: float | None
    jitter_ms: _u64 | None


class _Retry(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    max_attempts: _u32 | None
    backoff: _Backoff | None


class _FiveSlots(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    id: str
    payload: bytes
    created_at_ms: _u64
    attempt: _u32
    retry: _Retry


_decode_four = msgspec.msgpack.Decoder(Envelope).decode
_decode_five = msgspec.msgpack.Decoder(_FiveSlots).decode
_first_byte = itemgetter(0)
_attempt = attrgetter("attempt")
_created_at_ms = attrgetter("created_at_ms")


def unpack_envelope(data: bytes) -> Envelope:
    """The envelope in `data`; WireError exactly where a 1.3.0 consumer gives up as well."""
    try:
        if data[0] == _FOUR_SLOTS:
            envelope = _decode_four(data)
            # Checked here, not in the type: a constrained int field decodes more slowly.
            if envelope.created_at_ms >= 0 and 0 <= envelope.attempt <= U32:
                return envelope
        elif data[0] == _FIVE_SLOTS:
            return _with_retry(_decode_five(data))
    except (msgspec.MsgspecError, ValueError, IndexError):
        pass  # not the usual shape: the thorough reader decides
    try:
        return _read_envelope(read_value(data))
    except WireError as error:
        raise WireError(f"not a job envelope: {error.args[0]}") from error


def unpack_envelopes(many: Sequence[Any]) -> list[Envelope] | None:
    """A whole page, without a call for each, if all of it are bytes of the usual shape; None: it is
    not, so read each by itself."""
    try:
        if {*map(_first_byte, many)} != {_FOUR_SLOTS}:
            return None
        found = [*map(_decode_four, many)]
    except (msgspec.MsgspecError, ValueError, IndexError, TypeError):
        return None
    attempts = {*map(_attempt, found)}
    if min(attempts) < 0 or max(attempts) > U32 or min(map(_created_at_ms, found)) < 0:
        return None
    return found


def _with_retry(five: _FiveSlots) -> Envelope:
    retry, backoff = five.retry, five.retry.backoff
    spec = None
    if backoff is not None:
        spec = BackoffSpec(
            backoff.kind,
            backoff.delay_ms,
            backoff.max_delay_ms,
            backoff.multiplier,
            backoff.jitter_ms,
        )
    override = RetryOverride(retry.max_attempts, spec)
    return Envelope(five.id, five.payload, five.created_at_ms, five.attempt, override)


def _read_envelope(value: Any) -> Envelope:
    found = fields(value, ("id", "payload", "created_at_ms", "attempt", "retry"), sizes=range(3, 6))
    try:
        return Envelope(
            text(found["id"]),
            blob(found["payload"]),
            uint(found["created_at_ms"]),
            uint(found.get("attempt", 0), U32),
            read_retry(found.get("retry")),
        )
    except KeyError as error:
        raise WireError(f"{error} is missing") from error


def unpack_retry(data: bytes) -> RetryOverride | None:
    """What `pack_retry` wrote; None for nil."""
    return read_retry(read_value(data))


def read_retry(value: Any) -> RetryOverride | None:
    """An override in any form, already decoded."""
    if value is None:
        return None
    found = fields(value, ("max_attempts", "backoff"), sizes=(2,))
    return RetryOverride(
        maybe_uint(found.get("max_attempts"), U32), _read_backoff(found.get("backoff"))
    )


def _read_backoff(value: Any) -> BackoffSpec | None:
    if value is None:
        return None
    names = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")
    found = fields(value, names, sizes=(5,))
    if "kind" not in found or "delay_ms" not in found:
        raise WireError("a backoff without kind or delay_ms")
    kind, content = variant(found["kind"], _KINDS)
    if content is not None:
        raise WireError("a backoff kind with fields")
    return BackoffSpec(
        kind,
        uint(found["delay_ms"]),
        maybe_uint(found.get("max_delay_ms")),
        maybe_float(found.get("multiplier")),
        maybe_uint(found.get("jitter_ms")),
    )
