"""The reference itself, ChasquiMQ 1.3.0 from PyPI, in an environment of its own under `.cache/`.

It shares our import name, so it never comes into our process.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.chaos.kit.fleet import ROOT, environment

REQUIREMENTS = ("chasquimq==1.3.0", "msgpack==1.2.4", "redis==6.4.0")
HOME = ROOT / ".cache" / "reference"


def interpreter() -> Path:
    """The reference's Python. Made when it is missing; safe when several ask at once."""
    python = HOME / "bin" / "python"
    stamp = HOME / "stamp"
    wanted = "\n".join([sys.version, *REQUIREMENTS])
    HOME.parent.mkdir(parents=True, exist_ok=True)
    with (HOME.parent / "reference.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text() == wanted):
            venv.create(HOME, clear=True, with_pip=True)
            _install(python)
            stamp.write_text(wanted)
    return python


def _install(python: Path) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", *REQUIREMENTS]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment(ours=False), check=False
    )
    if done.returncode:
        reason = f"the reference could not be installed from PyPI: {done.stderr.strip()[-300:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
