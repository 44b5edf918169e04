"""Redis >= 7.0 and Valkey >= 8: the same verbs, each with a short script where needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq import lua
from chasquimq.config import DialectName, StreamOptions
from chasquimq.store.resp import Command, bulk, bulks, pack
from chasquimq.wire import Keys


class Portable:
    name: DialectName = "portable"
    safe_to_resend = False

    def __init__(self, keys: Keys, *, group: str, producer_id: bytes, trim: int) -> None:
        self._keys = keys
        self._producer_id = producer_id
        self._trim = trim
        trimming = (b"MAXLEN", b"~", b"%d" % trim) if trim else ()
        front = b"$4\r\nXADD\r\n%b%b$1\r\n*\r\n$1\r\nd\r\n$"
        front %= (bulk(keys.stream), bulks(trimming))
        self._fronts = [b"*%d\r\n%b" % (size + len(trimming), front) for size in (5, 7, 9)]
        sha = bulk(lua.SHA["ack"])
        self._ack = b"$7\r\nEVALSHA\r\n%b$1\r\n1\r\n%b%b" % (sha, bulk(keys.stream), bulk(group))

    def idmp_max_size(self, options: StreamOptions) -> int:
        return 0

    def add_front(self, job_id: bytes, extras: int) -> bytes:
        return self._fronts[extras]

    def add_own(self, job_id: bytes, fields: Sequence[bytes], marker_s: int) -> bytes:
        marker = self._keys.idmp(self._producer_id.decode(), job_id.decode())
        args: Command = (marker_s, self._trim, *fields)
        return pack(*lua.call("add_once", (self._keys.stream, marker), args))

    def ack(self, ids: Sequence[bytes]) -> bytes:
        return b"*%d\r\n%b%b" % (5 + len(ids), self._ack, bulks(ids))

    def acked(self, reply: Any) -> int:
        return int(reply)
