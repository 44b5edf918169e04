"""Whatever bytes stand where an envelope belongs: a WireError, or a job that packs to itself."""

from __future__ import annotations

import msgspec

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.job import Envelope

KINDS = ("fixed", "exponential")


def check(data: bytes) -> None:
    page = wire.unpack_envelopes([data, data])
    try:
        found = wire.unpack_envelope(data)
    except WireError:
        assert page is None, "a page takes what a single read refuses"
        return
    assert page is None or repr(page) == repr([found, found])
    # Behind an array anything may stand, and it makes the thorough reader read all of it.
    assert repr(wire.unpack_envelope(data + b"\xc0")) == repr(found), "the two readers differ"
    packed = wire.pack_envelope(found)
    assert repr(wire.unpack_envelope(packed)) == repr(_as_written(found))
    assert wire.pack_envelope(wire.unpack_envelope(packed)) == packed


def _as_written(envelope: Envelope) -> Envelope:
    """A kind of backoff that nobody knows is written as just that."""
    retry = envelope.retry
    if retry is None or retry.backoff is None or retry.backoff.kind in KINDS:
        return envelope
    backoff = msgspec.structs.replace(retry.backoff, kind="unknown")
    return msgspec.structs.replace(envelope, retry=msgspec.structs.replace(retry, backoff=backoff))
