"""The command as people and programs run it: in a terminal of a size, in a pipe, in this process.

`Chasqui.run`    a real process with pipes: what scripts see
`Chasqui.follow` the same, to be read while it runs
`Chasqui.open`   a real process in a pseudo-terminal, whose screen can be read while it runs
`Chasqui.call`   `main()` in this process, with pipes: the same words, without starting Python
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import selectors
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self
from unittest import mock

import pyte

from chasquimq.cli import main
from tests.servers import DialectServer

COMMAND = (sys.executable, "-m", "chasquimq")
PATIENCE_S = 30.0
CTRL_C = b"\x03"


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Terminal:
    """A command in a pseudo-terminal. Leaving it ends the command."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], columns: int, rows: int, cwd: Path | None
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._end, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=cwd,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C reaches it
        )  # fmt: skip
        os.close(theirs)
        self._watch = selectors.DefaultSelector()
        self._watch.register(self._end, selectors.EVENT_READ)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen now, without blanks at the end."""
        self._read(0.0)
        lines = [line.rstrip() for line in self._screen.display]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def resize(self, columns: int, rows: int) -> None:
        """As when somebody pulls at the window's corner."""
        self._screen.resize(rows, columns)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        os.write(self._end, keys)

    def until(self, seen: str | Callable[[str], bool]) -> str:
        """Wait until the screen shows a text, or pleases a function; answers the screen."""
        pleased = seen if callable(seen) else lambda text: seen in text
        deadline = time.monotonic() + PATIENCE_S
        while not pleased(text := self.text):
            assert time.monotonic() < deadline, f"the screen still shows:\n{text}"
            if not self._read(0.1) and self.process.poll() is not None and not pleased(self.text):
                raise AssertionError(f"it ended with {self.process.returncode}:\n{self.text}")
        return text

    def end(self) -> int:
        """Wait for its end; answers its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it has not ended:\n{self.text}"
            self._read(0.05)
        while self._read(0.0):
            pass
        return self.process.returncode

    def _read(self, timeout: float) -> bool:
        if not self._watch.get_map() or not self._watch.select(timeout):
            return False
        try:
            data = os.read(self._end, 65_536)
        except OSError:  # Linux says so when the other end is gone
            data = b""
        if not data:
            self._watch.unregister(self._end)
            return False
        self.raw += data
        self._stream.feed(data)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._watch.close()
        os.close(self._end)


@contextmanager
def following(
    argv: list[str],
    env: Mapping[str, str],
    *,
    stderr: int = subprocess.PIPE,
    cwd: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process, to be read while it runs. One that runs too long is killed, so that a read
    comes to its end."""
    pipes = {"stdout": subprocess.PIPE, "stderr": stderr}
    with subprocess.Popen(argv, env=env, cwd=cwd, **pipes) as process:
        deadline = threading.Timer(PATIENCE_S, process.kill)
        deadline.start()
        try:
            yield process
        finally:
            deadline.cancel()
            process.kill()


class Chasqui:
    """The command, told by its environment which server there is."""

    def __init__(self, server: DialectServer) -> None:
        self.server = server
        self.env = {
            **{name: value for name, value in os.environ.items() if name not in _UNSET},
            "CHASQUI_REDIS_URL": server.url,
            "CHASQUI_DIALECT": server.forced_dialect or "",
            "TERM": "xterm-256color",
        }

    def run(self, *args: str, input: bytes = b"", cwd: Path | None = None) -> Ended:
        done = subprocess.run(
            [*COMMAND, *args],
            input=input,
            capture_output=True,
            env=self.env,
            cwd=cwd,
            timeout=PATIENCE_S * 2,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def open(
        self, *args: str, columns: int = 80, rows: int = 24, cwd: Path | None = None
    ) -> Terminal:
        return Terminal([*COMMAND, *args], self.env, columns, rows, cwd)

    @contextmanager
    def follow(self, *args: str) -> Iterator[subprocess.Popen[bytes]]:
        """A real process of the command, to be read while it runs."""
        with following([*COMMAND, *args], self.env) as process:
            yield process

    def call(self, *args: str, input: bytes = b"") -> Ended:
        out, err = io.StringIO(), io.StringIO()
        stdin = io.TextIOWrapper(io.BytesIO(input))
        with (
            mock.patch.dict(os.environ, self.env, clear=True),
            mock.patch.object(sys, "stdin", stdin),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(args)
        return Ended(code, out.getvalue(), err.getvalue())


_UNSET = {
    *("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CHASQUI_REDIS_URL", "CHASQUI_DIALECT"),
    "PYTHONUNBUFFERED",  # would hide that something is not flushed
}
