"""Bytes made to hurt reach every reader there is, and a real worker on a real server.

What each of them costs is bounded, and none is lost: what cannot be read lies in the DLQ as it
came.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import wire
from chasquimq.errors import ChasquiError
from chasquimq.spark.decode.text import to_json
from chasquimq.spark.decode.variant import pack_variant
from chasquimq.spark.options import View
from chasquimq.store.results import unpack_result
from tests.bombs import BOMBS, KIB, ODD, inside
from tests.engine.desk import Desk, eventually
from tests.house.tree import ROOT
from tests.servers import DialectServer
from tests.unit.spark.stored import ENTRY_ID, FORMS, VIEWS, decode
from tests.unit.wire.test_wire_bombs import peak

MOST_MIB = 256  # by which a worker may grow over all of them
MOST_CPU_S = 30.0  # a guard against what never ends, not a measurement


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    return Desk(dialect_server, queue_name)


def _fields(data: bytes) -> list[bytes]:
    return [
        b"d",
        data,
        b"n",
        data[:200],
        b"e",
        data[:200],
        b"id",
        data,
        b"u",
        data,
        b"reason",
        data,
    ]


READERS: dict[str, Callable[[bytes], Any]] = {
    "result": lambda data: unpack_result("id", data),
    "member": lambda data: wire.unpack_envelope(wire.split_member(data)[1]),
    "entry": lambda data: wire.split_entry([data, data]),
    "name": wire.decode_name,
    "revival": lambda data: wire.revive("1-1", _fields(data)),
    "dead": lambda data: wire.dead_job_id(wire.unpack_dead(b"1-1", _fields(data))),
    "event": lambda data: wire.unpack_event(_fields(data)),
    "exported row": wire.unpack_msgpack,
    "exported line": wire.unpack_json,
    "end of a row": wire.row_end,
    "JSON of Spark": to_json,
    "variant of Spark": lambda data: pack_variant(wire.decode(data)),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_reader_refuses_or_reads_at_little_cost(reader: str) -> None:
    for name, data in BOMBS.items():
        taken, error = peak(READERS[reader], data)
        assert error is None or isinstance(error, ChasquiError), (name, error)
        # Copies are fine, and texts of wide characters; what it only claims must not be built.
        assert taken < 16 * len(data) + 512 * KIB, (name, taken)


def _rows(data: bytes) -> dict[View, Any]:
    """Where Spark finds bytes of strangers, by the view that shows them."""
    return {
        "jobs": [ENTRY_ID, [b"d", inside(data), b"n", data[:200]]],
        "pending": [ENTRY_ID, b"w", 1, 1, [b"d", data]],
        "delayed": (data, b"1"),
        "dlq": [ENTRY_ID, _fields(data)],
        "events": [ENTRY_ID, _fields(data)],
        "results": (b"id", data, 1),
        "repeatables": [b"key", b"1", [data, data, b"1", None]],
    }


@pytest.mark.parametrize("form", ["json", "variant", "struct"])
@pytest.mark.parametrize("view", VIEWS)
def test_spark_shows_a_row_for_each_and_goes_on(view: View, form: str) -> None:
    small = [data for data in BOMBS.values() if len(data) < 300 * KIB]
    batch = decode(view, [_rows(data)[view] for data in small], FORMS[form])
    assert batch.num_rows == len(small)


# -- a worker --------------------------------------------------------------------------------------


def worker_on(server: DialectServer, queue: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.security.app_bombs", server.url, queue]
    env = {**os.environ, "DIALECT": server.forced_dialect or ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=env, cwd=ROOT, **pipes)


async def test_a_worker_buries_all_of_them_and_lives(desk: Desk) -> None:
    """In a process that may not grow beyond its limit, and that notices whatever is loaded."""
    bodies = [*BOMBS.values(), *map(inside, BOMBS.values())]
    with worker_on(desk.server, desk.name) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            for body in bodies:
                desk.put_raw(body or b"-", b"bomb")
            desk.redis.zadd(desk.keys.delayed, {data: 1 for data in BOMBS.values() if data})
            for name, data in ODD.items():
                desk.put_raw(inside(data), name.encode())
            await eventually(lambda: desk.waiting() == 0 and desk.delayed() == 0, 60)
            desk.put("last", name="last")
            told = json.loads(process.stdout.readline())
        finally:
            process.kill()
    assert told["ran"] == sorted([*ODD, "first", "last"])
    assert told["loaded"] == []
    assert told["grown_mib"] < MOST_MIB and told["cpu_s"] < MOST_CPU_S
    dead = [(row.get(b"n", b""), row.get(b"d", b"")) for row in desk.dead()]
    wanted = [(b"bomb", body or b"-") for body in bodies]
    assert sorted(dead) == sorted([*wanted, *map(_member, filter(None, BOMBS.values()))])


def _member(data: bytes) -> tuple[bytes, bytes]:
    """What becomes of it as a member of the delayed set: its front may be a name."""
    try:
        return wire.split_member(data)
    except ChasquiError:
        return b"", data
