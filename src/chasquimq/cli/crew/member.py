"""One process of a crew, as its supervisor sees it: started, told, listened to, ended.

The password in a URL travels over the socket pair: arguments can be read by every user of the
machine. What the process writes to stderr comes by a pipe and is passed on, line by line, so
that the last words of one that crashed are known. While it cannot be passed on the pipe is not
read, which makes the process wait.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import cast

from chasquimq.cli.crew.message import (
    HELD_SIGNALS,
    Command,
    Ended,
    Failed,
    Full,
    Loaded,
    Message,
    Orders,
    Ready,
    Role,
    State,
    Stopping,
    Verb,
    line,
    read_message,
)
from chasquimq.cli.crew.words import Words
from chasquimq.cli.exits import Exit
from chasquimq.observe.probe import Depths
from chasquimq.text import discreet, shown

CHILD = "chasquimq.cli.crew.child"
LONGEST_LINE = 64 * 2**20  # of what a process says
FAREWELL_S = 5.0  # beyond its drain deadline; child.py ends itself a little earlier
LAST_WORDS_S = 0.5  # programs that a handler started may keep stderr open
PIPE_BYTES = 2**20  # of stderr, where the system allows it: a supervisor that is busy delays nobody
LOOK_S = 0.02

Pass = Callable[[int, bytes], None]  # a process's index, and a line of its stderr
Room = Callable[[], bool]  # may more be passed on now?


class Member:
    """`loaded`, `ready` and `stopping` are set when it says so, and all of them at its end."""

    def __init__(self, orders: Orders, passing: Pass, room: Room = lambda: True) -> None:
        self.index = orders.index
        self.loaded, self.ready = asyncio.Event(), asyncio.Event()
        self.stopping, self.ended = asyncio.Event(), asyncio.Event()
        self.pid = 0
        self.code: int | None = None
        self.found: Loaded | None = None
        self.ready_at: float | None = None
        self.answer: Ready | None = None
        self.state: State | None = None
        self.stated_at = 0.0
        self.depths: list[Depths] = []
        self.measured_at = 0.0
        self.failure: Failed | None = None
        self.why: str | None = None  # it stops, by its own account
        self.unfit: str | None = None  # why it was told to stop, when it could not work
        self.stalled: str | None = None  # what it said when it was asked last
        self.stalls = 0  # how often in a row
        self.unanswered = 0  # looks since the last question that it has not answered
        self.told_to_stop = False
        self.said_farewell = False
        self.last_words = ""
        self._orders = orders
        self._pass = passing
        self._room = room
        self._asked = False
        self._kill_at: float | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def roles(self) -> list[Role]:
        return self.found.roles if self.found is not None else []

    @property
    def is_stable(self) -> bool:
        return any(role.stable for role in self.roles)

    @property
    def is_done(self) -> bool:
        """It has ended, and as it should: not by the hand of an import or a handler."""
        return self.code == 0 and (self.said_farewell or self.told_to_stop)

    def well_s(self) -> float:
        return 0.0 if self.ready_at is None else time.monotonic() - self.ready_at

    def how(self) -> str:
        """How it ended, for a log line."""
        code = self.code or 0
        if code < 0:
            try:
                how = f"was killed by {signal.Signals(-code).name}"
            except ValueError:
                how = f"was killed by signal {-code}"
        else:
            how = f"ended with exit code {code}"
        words = self.failure.text if self.failure is not None else self.last_words
        return f"{how}: {shown(discreet(words), 300)}" if words else how

    # -- telling ---------------------------------------------------------------------------------

    def tell(self, verb: Verb) -> None:
        if self._writer is None or self._writer.is_closing():
            return
        if verb == "state":
            if self._asked:
                self.unanswered += 1
                return  # one question at a time
            self._asked = True
        self._writer.write(line(Command(verb)))

    def stop(self) -> None:
        """Let it drain. It has its time, and is killed when that is over."""
        if not self.told_to_stop:
            self.told_to_stop = True
            drain_s = max((role.drain_ms for role in self.roles), default=0) / 1000
            self._kill_at = time.monotonic() + drain_s + FAREWELL_S
            self.tell("stop")

    def cannot_work(self, looks: int, unanswered: int) -> str | None:
        """Why a new process is needed in its place: it has said so in as many looks in a row, or
        has not answered in as many. Looks, not seconds: a machine may have been asleep."""
        if self.why is not None or self.told_to_stop:
            return None
        if self.stalls >= looks:
            return self.stalled
        if self.unanswered >= unanswered:
            return f"it has not answered {self.unanswered} times: is a handler blocking its loop?"
        return None

    def stop_now(self) -> None:
        self.told_to_stop = True
        self._kill_at = time.monotonic() + FAREWELL_S
        self.tell("now")

    def kill_if_due(self) -> bool:
        if self._kill_at is None or time.monotonic() < self._kill_at or self.ended.is_set():
            return False
        self._kill_at = None
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        return True

    # -- its life --------------------------------------------------------------------------------

    async def live(self, env: Mapping[str, str]) -> None:
        """Start it, listen to it, and return when it has ended and all it said is heard."""
        try:
            await self._live(env)
        except OSError as error:  # no process could be had
            self.code, self.last_words = Exit.FAILED, f"it cannot be started: {error}"
        for event in (self.loaded, self.ready, self.stopping, self.ended):
            event.set()

    async def _live(self, env: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        words, pen = _pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, HELD_SIGNALS)  # which it inherits
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", CHILD, str(theirs.fileno())),
                stderr=pen,
                pass_fds=(theirs.fileno(),),
                env=env,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
            theirs.close()
            os.close(pen)
        self.pid = self._process.pid
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
        self._writer.write(line(self._orders))
        if self.told_to_stop:
            self.tell("stop")
        async with asyncio.TaskGroup() as group:
            listening = group.create_task(self._listen(reader))
            reading = group.create_task(self._read(words))
            self.code = await self._process.wait()
            await asyncio.wait([listening, reading], timeout=LAST_WORDS_S)
            listening.cancel()
            reading.cancel()
        self._writer.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            async for text in reader:
                self._hear(read_message(text))
        except ConnectionError:
            pass

    def _hear(self, message: Message) -> None:
        match message:
            case Loaded():
                self.found = message
                self.loaded.set()
            case Ready():
                self.answer, self.ready_at = message, time.monotonic()
                self.ready.set()
                self.tell("state")
            case State():
                self._asked, self.unanswered = False, 0
                self.state, self.stated_at = message, time.monotonic()
                told = [post.stalled for post in message.posts if post.stalled is not None]
                self.stalled = told[0] if told else None
                self.stalls = self.stalls + 1 if told else 0
            case Full():
                self.depths, self.measured_at = message.depths, time.monotonic()
            case Stopping():
                self.why, self.said_farewell = message.why, True
                self.stopping.set()
            case Failed():
                self.failure = message
            case Ended():
                self.said_farewell = True
                self.state, self.stated_at = message.state, time.monotonic()

    async def _read(self, words: int) -> None:
        """Pass on what it writes to stderr."""
        lines = Words()

        def heard(data: bytes) -> None:
            for one in lines.feed(data):
                self._pass(self.index, one)
            self.last_words = lines.last()

        ear = _Ear(heard, lambda: self.code is not None or self._room())
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: ear, os.fdopen(words, "rb")
        )
        try:
            await ear.over.wait()
        finally:
            transport.close()
            for one in lines.end():
                self._pass(self.index, one)
            self.last_words = lines.last()


class _Ear(asyncio.Protocol):
    """Hears what comes from a pipe, and reads on when there is room for more."""

    def __init__(self, heard: Callable[[bytes], None], room: Room) -> None:
        self.over = asyncio.Event()
        self._heard = heard
        self._room = room
        self._pipe: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard(data)
        if self._pipe is not None and not self._room():
            self._pipe.pause_reading()
            self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def _look_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._pipe is None or self._pipe.is_closing():
            return
        if self._room():
            self._pipe.resume_reading()
        else:
            self._look_later()


def _pipe() -> tuple[int, int]:
    words, pen = os.pipe()
    with suppress(OSError, AttributeError):  # the system's own size will do
        fcntl.fcntl(pen, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return words, pen
