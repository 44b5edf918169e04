"""Whatever fields an entry has, nil bodies and odd counts too: every reader of it stays calm."""

from __future__ import annotations

from typing import Any

from chasquimq import wire
from chasquimq.errors import WireError
from chasquimq.store import sighting
from chasquimq.store.jobs import _charged
from tests.fuzz.draw import Draw

NAMES = (b"d", b"n", b"u", b"t", b"e", b"id", b"ts", b"attempt", b"failed_at_ms", b"job_id")
NO_LIST: tuple[Any, ...] = (None, b"d", 7, {b"d": b""}, "d", -1.5)
ENTRY_ID = b"1794771784391-0"  # given by the server, so always of this form
SECTIONS = 8  # nested lists go no deeper


def check(data: bytes) -> None:
    draw = Draw(data)
    shape, entry_id = draw.number(), draw.blob()
    fields: Any = draw.one_of(NO_LIST) if shape == 255 else _list(draw, SECTIONS)
    _split(fields)
    _dead(entry_id, fields)
    if isinstance(fields, list):
        _charge(fields, shape)
        sighting.in_stream([ENTRY_ID, fields or None])
        sighting.in_dlq([ENTRY_ID, fields or None])


def _list(draw: Draw, depth: int) -> list[Any]:
    fields: list[Any] = []
    while draw and (kind := draw.number()) != 255:
        if kind < 128:
            fields.append(NAMES[kind % len(NAMES)])
        elif kind < 240:
            fields.append(draw.blob())
        elif kind < 244 and depth:
            fields.append(_list(draw, depth - 1))
        else:
            fields.append(draw.one_of(NO_LIST))
    return fields


def _split(fields: Any) -> None:
    split = wire.split_entry(fields)
    if isinstance(fields, list):
        assert wire.split_entry(tuple(fields)) == split, "the quick way and the thorough one differ"
    if isinstance(split, str):
        assert split
        return
    unique, carrier = wire.unique_hint(fields), wire.carrier_of(fields)
    joined = wire.join_entry(*split, unique, carrier)
    assert wire.split_entry(joined) == split
    assert (wire.unique_hint(joined), wire.carrier_of(joined)) == (unique, carrier)
    wire.decode_name(split[1])


def _dead(entry_id: bytes, fields: Any) -> None:
    try:
        wire.unpack_event(fields)
        dead = wire.unpack_dead(entry_id, fields)
    except WireError:
        assert not isinstance(fields, (list, tuple)), "a list of fields can always be looked at"
        return
    wire.dead_job_id(dead)
    try:
        revival = wire.revive("1-0", fields)
    except WireError:
        return
    assert wire.unpack_envelope(revival.envelope).attempt == 0


def _charge(fields: list[Any], deliveries: int) -> None:
    charged = _charged(fields, deliveries)
    if charged is not fields:
        body, _ = wire.split_entry(charged)
        assert wire.unpack_envelope(body).attempt >= deliveries
