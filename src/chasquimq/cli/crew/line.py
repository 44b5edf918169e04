"""A process's end of the line to its supervisor: two threads, so that neither can hold it up.

One thread hears: also while the event loop is busy with a handler that blocks it, or with an
import that takes long. The other one speaks: a supervisor that is stopped, and reads nothing,
does not stop the Workers.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from chasquimq.cli.crew.message import Message, Orders, Verb, line, read_command, read_orders

Heard = Callable[[Verb | None], None]  # None: the supervisor is gone


class Line:
    def __init__(self, end: socket.socket) -> None:
        end.set_inheritable(False)  # what handlers start is not to keep it open
        self._end = end
        self._lines = end.makefile("rb")
        self._out: SimpleQueue[bytes | None] = SimpleQueue()
        self._speaker = threading.Thread(target=self._speak, name="chasqui-say", daemon=True)
        self._speaker.start()

    def orders(self) -> Orders | None:
        """The first line; None when nobody is there."""
        first = self._lines.readline()
        return read_orders(first) if first else None

    def listen(self, heard: Heard) -> None:
        """Tell what comes, from a thread of its own."""
        threading.Thread(target=self._hear, args=(heard,), name="chasqui-hear", daemon=True).start()

    def say(self, message: Message) -> None:
        self._out.put(line(message))

    def close(self, timeout: float = 2.0) -> None:
        """Wait until everything is said."""
        self._out.put(None)
        self._speaker.join(timeout)

    def _hear(self, heard: Heard) -> None:
        with suppress(OSError):
            for text in self._lines:
                heard(read_command(text).do)
        heard(None)

    def _speak(self) -> None:
        with suppress(OSError):  # nobody listens any more, which the other thread hears
            while (text := self._out.get()) is not None:
                self._end.sendall(text)
