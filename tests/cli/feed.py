"""What tests of `chasqui add` look at, and how they feed it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chasquimq import wire
from tests.cli.kit import COMMAND, PATIENCE_S, Chasqui
from tests.servers import DialectServer


def stored(chasqui: Chasqui, name: str) -> list[Any]:
    """Name, data and id of the jobs in the stream."""
    found = []
    for _, fields in chasqui.server.client().xrange(wire.Keys(name).stream):
        envelope = wire.unpack_envelope(fields[b"d"])
        found.append((fields.get(b"n", b"").decode(), wire.decode(envelope.payload), envelope.id))
    return found


def data(chasqui: Chasqui, name: str) -> list[Any]:
    return [one for _, one, _ in stored(chasqui, name)]


def members(chasqui: Chasqui, name: str) -> list[tuple[Any, float]]:
    rows = chasqui.server.client().zrange(wire.Keys(name).delayed, 0, -1, withscores=True)
    return [(wire.unpack_envelope(wire.split_member(member)[1]), score) for member, score in rows]


def lines(path: Path, count: int) -> Path:
    path.write_text("".join(f'{{"user": {n}}}\n' for n in range(count)))
    return path


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def piped(chasqui: Chasqui, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "add", *args], env=chasqui.env, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def unread(server: DialectServer) -> bool:
    """Whether something was sent to a server that it has not read yet."""
    port = f":{int(server.url.rpartition(':')[2]):04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(port) and not row[4].endswith(":00000000") for row in rows)
