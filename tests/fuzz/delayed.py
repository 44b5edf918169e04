"""Whatever lies in the delayed set: the promoter's script reads it as Python does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from chasquimq import lua, wire
from chasquimq.errors import WireError
from chasquimq.store.sighting import in_delayed
from tests.fuzz.draw import Draw
from tests.fuzz.kit import Check

URL = "CHASQUI_FUZZ_URL"  # where the server is, in the environment
LIMIT_S = b"60"
MOST = 8
KEYS = wire.Keys("fuzz")


def check(client: redis.Redis, data: bytes) -> None:
    draw = Draw(data)
    is_unique = draw.number() % 2 == 1
    members = [draw.blob() for _ in range(draw.number() % MOST)]
    members = sorted({*members, draw.rest()})
    expected, poison, ids = [], [], []
    for member in members:
        in_delayed(member, 1.0)
        try:
            name, body = wire.split_member(member)
        except WireError:
            poison.append(member)
            continue
        ids.append((_id(body), body))
        row = {b"d": body, b"n": name}
        if is_unique and ids[-1][0]:
            row[b"u"] = LIMIT_S
        elif not name:
            del row[b"n"]
        expected.append(row)
    entries, dead, reply = _promote(client, members, {one for one, _ in ids if one and is_unique})
    moved = reply[4:]
    assert [fields for _, fields in entries] == expected, "moved, but not as Python reads it"
    assert [fields[b"d"] for _, fields in dead] == poison, "set aside otherwise than Python would"
    assert reply[1] == 0 and reply[3] == len(poison)
    for (job_id, body), told in zip(ids, moved[::2], strict=True):
        _same_id(job_id, body, told)


def _id(body: bytes) -> bytes:
    try:
        return wire.unpack_envelope(body).id.encode()
    except WireError:
        return b""


def _same_id(job_id: bytes, body: bytes, told: bytes) -> None:
    """The script finds the id of what we write, and takes nothing else for one."""
    if not job_id:
        return
    head = wire.str_header(len(job_id))
    is_ours = 0x93 <= body[0] <= 0x95 and body[1:].startswith(head + job_id)
    assert told == job_id if is_ours else told in (b"", job_id), "another id than Python reads"


def _promote(
    client: redis.Redis, members: list[bytes], unique: set[bytes]
) -> tuple[list[Any], list[Any], list[Any]]:
    """All in one round trip, from an empty queue to what became of the members."""
    keys = (KEYS.delayed, KEYS.stream, KEYS.dlq, KEYS.promoter_lock)
    markers = [KEYS.unique("") + one for one in unique]
    pipe = client.pipeline(transaction=False)
    pipe.delete(*keys)
    for marker in markers:
        pipe.set(marker, b"1 %b me" % LIMIT_S)
    pipe.zadd(KEYS.delayed, dict.fromkeys(members, 1))
    args = ("fuzz", 60, 2 * MOST, KEYS.didx(""), KEYS.unique(""))
    pipe.eval(lua.SOURCES["promote"], len(keys), *keys, *args)
    pipe.xrange(KEYS.stream)
    pipe.xrange(KEYS.dlq)
    if markers:
        pipe.delete(*markers)
    reply, entries, dead = pipe.execute()[2 + len(markers) :][:3]
    return entries, dead, reply


@contextmanager
def opened() -> Iterator[Check]:
    client = redis.Redis.from_url(os.environ[URL])
    try:
        yield lambda data: check(client, data)
    finally:
        client.close()
