"""A real server as a child process: start, stop, kill, pause, start again on the same data.

    with Server(appendonly=True) as server:
        ...
        server.kill()      # as a crash would
        server.start()     # same address, same data

The server listens on a loopback port or a unix socket of its own and keeps its data in a folder
of its own. A guard process (`guard.py`) stops it when this program is gone, even by SIGKILL.
One `Server` belongs to one thread; its calls block for milliseconds.
"""

from __future__ import annotations

import os
import random
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote

from chasquimq.errors import ConfigError, StoreError
from chasquimq.server import guard
from chasquimq.server.find import Binary, Kind, find_server

Setting = str | int | Sequence[str]

# Below the range from which systems take the ports of outgoing connections. In that range a
# client that keeps reconnecting to a killed server can end up connected to itself, and the
# port is then taken when the server comes back.
PORTS = range(20_000, 32_000)
HOST = "127.0.0.1"


class Server:
    """One server. `start()` it or use it as a context manager; both wait until it answers."""

    def __init__(
        self,
        binary: Binary | str | Path | None = None,
        *,
        kind: Kind | None = None,
        port: int | None = None,
        unix_socket: bool | Path = False,
        folder: str | Path | None = None,
        appendonly: bool = False,
        password: str | None = None,
        config: Mapping[str, Setting] | None = None,
        start_timeout: float = 20.0,
    ) -> None:
        """`folder` holds the data and is kept; without it a temporary one is made and removed.

        `appendonly` keeps every write that was answered, also through a SIGKILL. `config` adds
        lines of the server's own configuration, several words of a line as a sequence.
        """
        if port is not None and unix_socket:
            raise ConfigError("a server listens on a port or on a unix socket: give one of them")
        self.binary = binary if isinstance(binary, Binary) else find_server(binary, kind=kind)
        self.port = port
        self._port_is_ours = port is None and not unix_socket
        self._unix_socket = unix_socket
        self._folder = None if folder is None else Path(folder).absolute()
        self._appendonly = appendonly
        self._password = password
        self._config = dict(config or {})
        self._start_timeout = start_timeout
        self._own: Path | None = None  # our temporary folder: configuration, log, socket, data
        self._guard: subprocess.Popen[bytes] | None = None
        self._heard: list[bytes] = []  # lines of the guard that nobody asked for yet
        self._pid: int | None = None

    def __repr__(self) -> str:
        where = "a unix socket" if self._unix_socket else f"{HOST}:{self.port}"
        return f"<Server {self.binary} at {where}, {'running' if self.is_running else 'stopped'}>"

    @property
    def is_running(self) -> bool:
        return self._guard is not None and self._guard.poll() is None

    @property
    def pid(self) -> int:
        if self._pid is None:
            raise StoreError("the server is not running; start() it first")
        return self._pid

    @property
    def folder(self) -> Path:
        """Where the server keeps its data."""
        return self._folder or self._home() / "data"

    @property
    def socket_path(self) -> Path | None:
        if isinstance(self._unix_socket, Path):
            return self._unix_socket.absolute()
        return self._home() / "server.sock" if self._unix_socket else None

    @property
    def url(self) -> str:
        """Where clients connect. It holds the password, if there is one: do not print it then."""
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        if self.socket_path is not None:
            return f"unix://{secret}{self.socket_path}"
        if self.port is None:
            raise StoreError("the server has no port yet; start() it first")
        return f"redis://{secret}{HOST}:{self.port}"

    def start(self) -> Self:
        if self.is_running:
            raise StoreError("the server is already running")
        self._dismiss()  # of one that ended by itself
        is_new = self._own is None
        if self._own is None:
            self._own = _new_folder()
        if self._folder is not None:
            try:
                _check_folder(self._folder, self._appendonly)
            except ConfigError:
                if is_new:
                    self._forget_home()
                raise
        for attempts_left in reversed(range(10)):
            if self.port is None and self._port_is_ours:
                self.port = _free_port()
            self._launch()
            failure = self._wait_until_it_answers()
            if failure is None:
                self._port_is_ours = False  # from here on restarts keep it
                return self
            self.kill()
            if not (_is_port_taken(failure) and self._port_is_ours and attempts_left):
                if is_new:
                    self._forget_home()
                if "Address already in use" in failure and self.socket_path is None:
                    taken = f"port {self.port} is taken; end what listens there, or take another"
                    failure = f"{taken} ({failure})"
                raise StoreError(f"{self.binary.path.name} did not start: {failure}")
            self.port = None
        raise AssertionError("unreachable")

    def stop(self, timeout: float = 10.0) -> None:
        """End the server as an operator would. A temporary folder goes with it."""
        if self._guard is not None:
            self._tell("term")
            if self._hear("exit", timeout) is None:
                self._tell("kill")
                self._hear("exit", timeout)
            self._dismiss()
        self._forget_home()

    def kill(self) -> None:
        """SIGKILL. The data folder stays, for the next `start()` or for `stop()` to remove."""
        if self._guard is not None:
            self._tell("kill")
            self._hear("exit", 10.0)
            self._dismiss()

    def pause(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        self._tell("pause")
        self._expect("paused")

    def resume(self) -> None:
        self._tell("resume")
        self._expect("resumed")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _home(self) -> Path:
        if self._own is None:
            raise StoreError("the server is not running; start() it first")
        return self._own

    def _forget_home(self) -> None:
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self._own = None

    def _launch(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._home() / "server.conf"
        # Settings go through a private file: a command line can be read by every user.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w") as out:
            out.write("".join(f"{_line(name, value)}\n" for name, value in self._settings()))
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__, str(self._home())),
                    *(str(self.binary.path), str(file)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for us, not for the server
            )
        self._heard = []
        said = self._hear("pid", self._start_timeout)
        self._pid = int(said) if said else None

    def _settings(self) -> list[tuple[str, Setting]]:
        path = self.socket_path
        settings: dict[str, Setting] = {
            "bind": HOST,
            "port": self.port or 0,
            "dir": str(self.folder),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if self._appendonly else "no",
            "appendfsync": "always",
        }
        if path is not None:
            settings |= {"unixsocket": str(path), "unixsocketperm": "700"}
        if self._password is not None:
            settings["requirepass"] = self._password
        return list((settings | self._config).items())

    @property
    def _log(self) -> Path:
        return self._home() / "server.log"

    def _wait_until_it_answers(self) -> str | None:
        """None when our own process answers; else why it does not."""
        deadline = time.monotonic() + self._start_timeout
        answer = b""
        while time.monotonic() < deadline:
            exited = self._hear("exit", 0.0)
            if exited is not None or self._pid is None:
                log = self._log.read_text(errors="replace").strip().splitlines()
                return " / ".join(line.strip() for line in log[-3:]) or f"exit code {exited}"
            try:
                answer = self._ask()
            except OSError as error:
                answer = str(error).encode()
            # Its process id tells it from a stranger that took the port before.
            if b"\nprocess_id:%d\r" % self._pid in answer:
                return None
            time.sleep(0.005)
        first = answer.decode(errors="replace").partition("\n")[0].strip()
        return f"no answer within {self._start_timeout:g} s ({first})"

    def _ask(self) -> bytes:
        with socket.socket(socket.AF_UNIX if self._unix_socket else socket.AF_INET) as asking:
            asking.settimeout(1.0)
            asking.connect(str(self.socket_path) if self._unix_socket else (HOST, self.port))
            if self._password is not None:
                asking.sendall(_command("AUTH", self._password))
            # INFO is answered while the data is still being loaded, PING is not.
            asking.sendall(_command("PING") + _command("INFO", "server") + _command("QUIT"))
            answer = b""
            while chunk := asking.recv(65_536):
                answer += chunk
        return answer if b"+PONG\r\n" in answer else answer[:200].replace(b"process_id", b"pid")

    def _tell(self, word: str) -> None:
        if self._guard is None or self._guard.stdin is None:
            raise StoreError("the server is not running; start() it first")
        try:
            self._guard.stdin.write(f"{word}\n".encode())
        except BrokenPipeError:
            pass  # it has ended by itself, which `_hear` will tell

    def _expect(self, word: str) -> None:
        if self._hear(word, 10.0) is None:
            raise StoreError("the server has ended by itself")

    def _hear(self, word: str, timeout: float) -> str | None:
        """The rest of the line that starts with `word`, or None when it does not come."""
        assert self._guard is not None and self._guard.stdout is not None
        deadline = time.monotonic() + timeout
        while True:
            for line in self._heard:
                if line.split()[0] == word.encode():
                    self._heard.remove(line)
                    return line.decode().removeprefix(word).strip()
            left = max(0.0, deadline - time.monotonic())
            if not _readable(self._guard.stdout, left):
                return None
            # The guard writes whole lines, each shorter than what a pipe takes in one piece.
            data = os.read(self._guard.stdout.fileno(), 4096)
            if not data:
                return "ended" if word == "exit" else None
            self._heard += data.splitlines()

    def _dismiss(self) -> None:
        if self._guard is not None:
            with self._guard:  # closes its pipes and waits for its end
                pass
        self._guard = self._pid = None


def _new_folder() -> Path:
    """Readable by us only."""
    try:
        return Path(tempfile.mkdtemp(prefix="chasqui-"))
    except OSError as error:
        raise ConfigError(
            f"cannot make a temporary folder: {error.strerror}; name one that can be written to "
            "in $TMPDIR"
        ) from None


def _check_folder(folder: Path, writes: bool) -> None:
    """Make it, if need be, and see that something can be kept there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if writes:
            with tempfile.TemporaryFile(dir=folder):
                pass
    except OSError as error:
        raise ConfigError(
            f"cannot keep data in {str(folder)!r:.300}: {error.strerror}; give another "
            "folder, or none for data that goes with the server"
        ) from None


def _free_port() -> int:
    for port in random.Random().sample(PORTS, 200):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((HOST, port))
            except OSError:
                continue
            return port
    raise StoreError(f"found no free port between {PORTS.start} and {PORTS.stop - 1}")


def _is_port_taken(failure: str) -> bool:
    return "Address already in use" in failure or "Failed listening on port" in failure


def _line(name: str, value: Setting) -> str:
    words = [str(value)] if isinstance(value, str | int) else value
    return " ".join([name, *(_quoted(word) for word in words)])


def _quoted(word: str) -> str:
    """A word as the server's configuration reads it, whatever is in it."""
    plain = (
        f"\\x{byte:02x}" if byte in b'"\\' or not 32 <= byte < 127 else chr(byte)
        for byte in word.encode()
    )
    return f'"{"".join(plain)}"'


def _command(*words: str) -> bytes:
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


def _readable(pipe: IO[bytes], timeout: float) -> bool:
    # Not `select.select`: a program with a thousand files open has a Server, too.
    with selectors.DefaultSelector() as watch:
        watch.register(pipe, selectors.EVENT_READ)
        return bool(watch.select(timeout))
