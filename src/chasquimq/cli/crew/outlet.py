"""The supervisor's stderr. The terminal or log collector that reads it may be slow, or not read at
all: neither the supervisor nor its processes wait for it.

1. a thread writes; what it has not written yet is held, up to a bound;
2. beyond that bound processes wait until half of it is written, for a second at most;
3. from then on their lines are left out, until half of what is held is written. How many there
   were is said.
"""

from __future__ import annotations

import io
import logging
import os
import select
import threading
import time
from collections import deque
from typing import TextIO

log = logging.getLogger("chasquimq.cli")

ROOM = 2**20  # bytes that may be held; of the supervisor's own words twice as many
PATIENCE_S = 1.0
PIECE = 16_384  # of a write
SILENT_S = 2.0  # at the end a reader that takes nothing for so long is not waited for


class Outlet(io.TextIOBase):
    """A stream for the supervisor's log, with another door for the lines of its processes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._file = _file_of(stream)
        self._held: deque[bytes] = deque()
        self._size = 0
        self._full_since: float | None = None
        self._sheds = False
        self._lost = self._lost_bytes = 0
        self._ending = self._over = False
        self._change = threading.Condition()
        self._writer = threading.Thread(target=self._run, name="chasqui-stderr", daemon=True)
        stream.flush()
        self._writer.start()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def write(self, text: str, /) -> int:
        """What the supervisor says itself."""
        if self._over:
            self._stream.write(text)
            self._stream.flush()
        else:
            with self._change:
                if self._size < 2 * ROOM:
                    self._hold(_bytes(text))
        return len(text)

    def pass_on(self, line: str) -> None:
        """A line of a process, with its end."""
        with self._change:
            self._hold(_bytes(line))

    def left_out(self, size: int) -> bool:
        """Whether a line of a process is not to be passed on; it is counted then."""
        with self._change:
            self._lost += self._sheds
            self._lost_bytes += size if self._sheds else 0
            return self._sheds

    def has_room(self) -> bool:
        """Whether more lines of processes shall come; asked until it is so."""
        with self._change:
            if self._full_since is None and self._size < ROOM:
                return True
            now = time.monotonic()
            if self._full_since is None:
                self._full_since = now
            self._sheds |= now - self._full_since >= PATIENCE_S
            return self._sheds

    def close(self) -> None:
        """Wait until all is written, as long as somebody reads."""
        with self._change:
            self._ending = True
            self._change.notify()
        left = -1
        while self._writer.is_alive() and self._size != left:
            left = self._size
            self._writer.join(SILENT_S)
        self._over = True

    def _hold(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        self._change.notify()

    # -- in the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._held or self._ending)
                if not self._held:
                    return
                data = self._next()
            for at in range(0, len(data), PIECE):
                piece = data[at : at + PIECE]
                self._write(piece)
                self._written(len(piece))

    def _next(self) -> bytes:
        """Several short ones in one write."""
        some = [self._held.popleft()]
        size = len(some[0])
        while self._held and size + len(self._held[0]) <= PIECE:
            some.append(self._held.popleft())
            size += len(some[-1])
        return b"".join(some)

    def _written(self, size: int) -> None:
        with self._change:
            self._size -= size
            if self._size > ROOM // 2:
                return
            self._full_since, self._sheds = None, False
            lost, self._lost = self._lost, 0
            lost_bytes, self._lost_bytes = self._lost_bytes, 0
        if lost:
            log.warning("%d lines of processes (%d bytes) were left out: stderr is not read as "
                        "fast as they write", lost, lost_bytes)  # fmt: skip

    def _write(self, data: bytes) -> None:
        """What cannot be written, to a full disk or a closed pipe, is lost; jobs go on."""
        if self._file is None:
            self._stream.write(data.decode())
            return
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except BlockingIOError:  # somebody has set it so
                waiting = select.poll()
                waiting.register(self._file, select.POLLOUT)
                waiting.poll(1_000)
            except OSError:
                return


def _file_of(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # it has none
        return None


def _bytes(text: str) -> bytes:
    return text.encode(errors="backslashreplace")
