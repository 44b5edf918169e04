"""Environments of their own under `.cache/`, for packages that must not come into ours.

The first is the reference, ChasquiMQ 1.3.0 from PyPI. It shares our import name, so it never
comes into our process: whoever wants it starts the interpreter that `interpreter()` answers.
Tests and benchmarks use the same environment.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ("chasquimq==1.3.0", "msgpack==1.2.4", "redis==6.4.0")


class NotInstallableError(RuntimeError):
    """The environment could not be made; the message says why."""


def interpreter(name: str = "reference", extra: tuple[str, ...] = ()) -> Path:
    """The reference's Python. `extra` requirements make another environment: another `name`."""
    return python_with(name, (*REQUIREMENTS, *extra))


def python_with(name: str, requirements: tuple[str, ...]) -> Path:
    """The Python of `.cache/<name>/`, an environment that has these from PyPI."""

    def make(home: Path) -> None:
        venv.create(home, clear=True, with_pip=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        run_installer([*pip, "install", "--quiet", *requirements], f"{requirements[0]} from PyPI")

    return make_once(name, "\n".join([sys.version, *requirements]), make) / "bin" / "python"


def make_once(name: str, wanted: str, make: Callable[[Path], None]) -> Path:
    """The folder `.cache/<name>/` as `wanted` describes it.

    `make` is called when it is missing or was made by another description. Safe when several
    ask at once.
    """
    home = ROOT / ".cache" / name
    stamp = home / "stamp"
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name(f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)  # what is half made is not taken for whole
            make(home)
            stamp.write_text(wanted)
    return home


def run_installer(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode:
        raise NotInstallableError(f"{what} could not be installed: {done.stderr.strip()[-300:]}")


def environment() -> dict[str, str]:
    """This process's environment without what would lead another Python to our packages."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours}
