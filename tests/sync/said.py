"""What the programs of these tests say, and how they wait. It imports little: they start often."""

from __future__ import annotations

import os
import sys
import time


def say(text: object) -> None:
    os.write(1, f"{text}\n".encode())  # in one piece, whoever else says something


def ask(text: object) -> None:
    """Say it, and wait to be told to go on."""
    say(text)
    sys.stdin.readline()


def wait_for_child(pid: int, limit_s: float = 30.0) -> int:
    """How a child ended: its exit code, or minus the signal. One that hangs is killed."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")
