"""Bytes <-> values, for everything that lies in Redis. Pure: no I/O, no clock.

Imported as one module: `from chasquimq import wire; wire.pack_envelope(...)`. Each file draws
its bytes on top. Whatever cannot be read is a `WireError`, whatever cannot be written an
`EncodeError`, and what a caller must not ask for a `ConfigError`.
"""

from __future__ import annotations

from chasquimq.wire.dead import dead_job_id, pack_dead, unpack_dead
from chasquimq.wire.delayed import before_id, join_member, split_member
from chasquimq.wire.entry import (
    carrier_of,
    check_job_id,
    check_name,
    decode_name,
    join_entry,
    split_entry,
    unique_hint,
)
from chasquimq.wire.envelope import (
    bin_header,
    pack_envelope,
    pack_retry,
    str_header,
    unpack_envelope,
    unpack_envelopes,
    unpack_retry,
)
from chasquimq.wire.event import EventRow, pack_event, unpack_event
from chasquimq.wire.export import (
    MAX_ROW_BYTES,
    Exported,
    pack_json,
    pack_msgpack,
    row_end,
    unpack_json,
    unpack_msgpack,
)
from chasquimq.wire.keys import Keys, check_queue_name, check_stored_queue_name
from chasquimq.wire.payload import decode, encode, encode_many
from chasquimq.wire.revival import Revival, pack_holder, revive
from chasquimq.wire.spec import (
    pack_override,
    pack_spec,
    resolved_key,
    unpack_spec,
)
from chasquimq.wire.started import UPTO, Started, Upto, pack_started, unpack_started
from chasquimq.wire.ulid import Mint

__all__ = [
    "MAX_ROW_BYTES",
    "UPTO",
    "EventRow",
    "Exported",
    "Keys",
    "Mint",
    "Revival",
    "Started",
    "Upto",
    "before_id",
    "bin_header",
    "carrier_of",
    "check_job_id",
    "check_name",
    "check_queue_name",
    "check_stored_queue_name",
    "dead_job_id",
    "decode",
    "decode_name",
    "encode",
    "encode_many",
    "join_entry",
    "join_member",
    "pack_dead",
    "pack_envelope",
    "pack_event",
    "pack_holder",
    "pack_json",
    "pack_msgpack",
    "pack_override",
    "pack_retry",
    "pack_spec",
    "pack_started",
    "resolved_key",
    "revive",
    "row_end",
    "split_entry",
    "split_member",
    "str_header",
    "unique_hint",
    "unpack_dead",
    "unpack_envelope",
    "unpack_envelopes",
    "unpack_event",
    "unpack_json",
    "unpack_msgpack",
    "unpack_retry",
    "unpack_spec",
    "unpack_started",
]
