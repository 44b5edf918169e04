"""Rows of a DLQ as tests put them there, and what happens between two of its pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.store.dead import DeadLetters, DeadRow
from tests.engine.desk import Desk

Rows = list[tuple[str, list[bytes]]]


def bury(
    desk: Desk,
    job_id: str,
    *,
    name: str = "",
    reason: str = "unrecoverable",
    data: Any = None,
    dlq_id: str = "*",
    own_id: bool = True,
    **more: Any,
) -> str:
    """A dead job; answers its dlq id. `own_id=False` is a row of the reference."""
    body = wire.pack_envelope(Envelope(job_id, wire.encode(data), 1, attempt=3))
    known = job_id if own_id else None
    fields = wire.pack_dead(body, name.encode(), b"7-7", reason, job_id=known, **more)
    return put(desk, fields, dlq_id)


def bury_all(desk: Desk, count: int, **more: Any) -> list[str]:
    """Jobs `0`, `1`, ...; answers their dlq ids."""
    return [bury(desk, f"{number}", **more) for number in range(count)]


def garbage(desk: Desk, count: int, reason: str = "decode_failed") -> list[str]:
    return [put(desk, [b"d", b"\xc1", b"reason", reason.encode()]) for _ in range(count)]


def put(desk: Desk, fields: list[bytes], dlq_id: str = "*") -> str:
    return bytes(desk.redis.execute_command("XADD", desk.keys.dlq, dlq_id, *fields)).decode()


def rows(desk: Desk) -> Rows:
    """The DLQ as it is, to the byte."""
    client = desk.redis.connection_pool.get_connection()
    try:  # past the client's own idea of a row, which is a dict
        client.send_command("XRANGE", desk.keys.dlq, "-", "+")
        return [(dlq_id.decode(), fields) for dlq_id, fields in client.read_response()]
    finally:
        desk.redis.connection_pool.release(client)


def fields_of(desk: Desk) -> list[list[bytes]]:
    return [fields for _, fields in rows(desk)]


def left(desk: Desk) -> list[str]:
    """The jobs in the DLQ, oldest first."""
    return [wire.unpack_envelope(row[b"d"]).id for row in desk.dead() if row[b"d"] != b"\xc1"]


def back(desk: Desk) -> list[str]:
    """The jobs in the stream, oldest first."""
    return [envelope.id for envelope in desk.envelopes()]


def between_pages(monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], None]) -> None:
    """Have something happen whenever a page has been read, and before anyone acts on it; it is
    told how many pages there were before."""
    read, pages = DeadLetters.page, 0

    async def page(self: DeadLetters, *args: Any, **options: Any) -> list[DeadRow]:
        nonlocal pages
        found = await read(self, *args, **options)
        happens(pages)
        pages += 1
        return found

    monkeypatch.setattr(DeadLetters, "page", page)
