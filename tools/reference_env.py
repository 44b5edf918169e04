"""The reference, ChasquiMQ 1.3.0 from PyPI, in an environment of its own under `.cache/`.

It shares our import name, so it never comes into our process: whoever wants it starts the
interpreter that `interpreter()` answers. Tests and benchmarks use the same environment.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ("chasquimq==1.3.0", "msgpack==1.2.4", "redis==6.4.0")


class NotInstallableError(RuntimeError):
    """The environment could not be made; the message says why."""


def interpreter(name: str = "reference", extra: tuple[str, ...] = ()) -> Path:
    """The reference's Python. Made when it is missing; safe when several ask at once.

    `extra` requirements make another environment, which wants another `name`.
    """
    home = ROOT / ".cache" / name
    python, stamp = home / "bin" / "python", home / "stamp"
    requirements = (*REQUIREMENTS, *extra)
    wanted = "\n".join([sys.version, *requirements])
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text() == wanted):
            venv.create(home, clear=True, with_pip=True)
            _install(python, requirements)
            stamp.write_text(wanted)
    return python


def environment() -> dict[str, str]:
    """This process's environment without what would lead another Python to our packages."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours}


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run(
        [*pip, *requirements], capture_output=True, text=True, env=environment(), check=False
    )
    if done.returncode:
        raise NotInstallableError(
            f"the reference could not be installed from PyPI: {done.stderr.strip()[-300:]}"
        )
