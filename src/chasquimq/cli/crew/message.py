"""What a supervisor and its processes tell each other: JSON, a line each, over a socket pair.

    supervisor   Orders                                                 once, first of all
                 run | state | depths | stop | now                      a Command each
    process      Loaded, Ready, State or Full where asked, [Stopping], Ended
                 ... or Failed, wherever it could not go on

A process loads its target and waits for `run`: so a broken file is known before anything that
works is given up, and two processes never use one consumer name at a time.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

import msgspec

from chasquimq.config import DialectName
from chasquimq.observe.probe import Depths

# Held back from a process until it can deal with them, and ignored at its very end: Ctrl-C reaches
# all processes of a terminal, also one that has just been started, or is about to end.
HELD_SIGNALS = frozenset((signal.SIGINT, signal.SIGHUP, signal.SIGTERM))

Verb = Literal["run", "state", "depths", "stop", "now"]
Trouble = Literal["config", "access", "unavailable", "error"]
LogFormat = Literal["text", "json"]


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What a process shall run, and how. It may hold a password: it is told, never an argument."""

    target: str
    index: int = 0  # of `processes`
    processes: int = 1
    redis_url: str | None = None
    dialect: DialectName | None = None
    concurrency: int | None = None
    drain_ms: int | None = None
    burst: bool = False
    max_jobs: int | None = None
    max_bytes: int | None = None
    metrics: bool = False
    log_runs: bool = False  # every one: in development somebody reads along
    uvloop: bool = True
    log_format: LogFormat = "text"
    log_level: str = "info"


class Command(msgspec.Struct, frozen=True):
    do: Verb


class Role(msgspec.Struct, frozen=True):
    """One Worker of a process. `stable`: it has a name of its own that lasts."""

    queue: str
    group: str
    server: str
    concurrency: int
    drain_ms: int
    stable: bool = False


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """`folder`: where the target came from."""

    roles: list[Role]
    loop: str
    folder: str
    notes: list[str] = []


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    dialects: list[str]
    rss: int


class Post(msgspec.Struct, frozen=True):
    """How one Worker is."""

    queue: str
    healthy: bool
    problems: list[str]
    health: dict[str, Any]
    stalled: str | None = None  # why only a new process can help


class State(msgspec.Struct, frozen=True, tag="state"):
    jobs: int = 0  # runs that ended
    failed: int = 0  # ... badly
    rss: int = 0
    posts: list[Post] = []
    metrics: list[Any] = []  # a Snapshot per Worker, where metrics were asked for


class Full(msgspec.Struct, frozen=True, tag="full"):
    """How full the queues are."""

    depths: list[Depths]


class Stopping(msgspec.Struct, frozen=True, tag="stopping"):
    why: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """`trace`: the lines of the traceback that are the user's."""

    kind: Trouble
    text: str
    trace: str = ""


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """It has run to its end; the last figures."""

    state: State


Message = Loaded | Ready | State | Full | Stopping | Failed | Ended

encode = msgspec.json.Encoder().encode
read_orders = msgspec.json.Decoder(Orders).decode
read_command = msgspec.json.Decoder(Command).decode
read_message = msgspec.json.Decoder(Message).decode


def line(message: Orders | Command | Message) -> bytes:
    return encode(message) + b"\n"
