"""Redis >= 8.6.2: XADD with IDMP, XACKDEL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq import lua
from chasquimq.config import DialectName, StreamOptions
from chasquimq.store.resp import Command, bulk, bulks, pack
from chasquimq.wire import Keys


class Native:
    name: DialectName = "native"
    safe_to_resend = True

    def __init__(self, keys: Keys, *, group: str, producer_id: bytes, trim: int) -> None:
        self._keys = keys
        self._producer_id = producer_id
        # Callers' ids live under a producer id of their own, so that ordinary adds, each of
        # which is remembered too, cannot push them out of the server's memory.
        self._own_producer_id = producer_id + b":own"
        self._trim = trim
        trimming = (b"MAXLEN", b"~", b"%d" % trim) if trim else ()
        trimmed = bulks(trimming)
        words = 6 + len(trimming)
        front = b"$4\r\nXADD\r\n%b$4\r\nIDMP\r\n%b$26\r\n"
        front %= (bulk(keys.stream), bulk(producer_id))
        self._fronts = [b"*%d\r\n%b" % (words + size, front) for size in (2, 4, 6)]
        self._after_id = b"\r\n%b$1\r\n*\r\n$1\r\nd\r\n$" % trimmed
        self._ack = b"$7\r\nXACKDEL\r\n%b%b$3\r\nIDS\r\n" % (bulk(keys.stream), bulk(group))

    def idmp_max_size(self, options: StreamOptions) -> int:
        return options.idmp_max_size

    def add_front(self, job_id: bytes, extras: int) -> bytes:
        return b"%b%b%b" % (self._fronts[extras], job_id, self._after_id)

    def add_own(self, job_id: bytes, fields: Sequence[bytes], marker_s: int) -> bytes:
        args: Command = (self._own_producer_id, job_id, self._trim, *fields)
        return pack(*lua.call("add_own", (self._keys.stream,), args))

    def ack(self, ids: Sequence[bytes]) -> bytes:
        count = len(ids)
        return b"*%d\r\n%b%b%b" % (5 + count, self._ack, bulk(count), bulks(ids))

    def acked(self, reply: Any) -> int:
        return len(reply) - int(reply.count(-1))
