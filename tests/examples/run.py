"""Run what a page shows, as its reader would: the blocks in order, against a real server."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import inspect
import io
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from chasquimq import Queue, QueueEvents, Worker
from tests.examples.page import ROOT, Block

PROGRAM_S = 20.0
# The same for a process of its own: defaults that lead to the test's server.
PRELUDE = """\
import inspect, chasquimq
for door in (chasquimq.Queue, chasquimq.QueueEvents, chasquimq.Worker):
    known = inspect.unwrap(door.__init__).__kwdefaults__
    known.update({{name: value for name, value in {defaults!r}.items() if name in known}})
"""


@contextlib.contextmanager
def defaults(**options: Any) -> Iterator[None]:
    """Give the doors other defaults, so that pages need not say where the test's server is."""
    doors = [inspect.unwrap(door.__init__).__kwdefaults__ for door in (Queue, QueueEvents, Worker)]
    before = [dict(door) for door in doors]
    for door in doors:
        door.update({name: value for name, value in options.items() if name in door})
    try:
        yield
    finally:
        for door, old in zip(doors, before, strict=True):
            door.update(old)


@contextlib.contextmanager
def loggers_restored() -> Iterator[None]:
    """Pages show how to silence a logger; the tests after them listen to it."""
    known = [logging.getLogger(name) for name in list(logging.root.manager.loggerDict)]
    before = [(one, one.level, one.disabled) for one in known]
    try:
        yield
    finally:
        for one, level, disabled in before:
            one.setLevel(level)
            one.disabled = disabled


async def run_block(
    page: str, block: Block, namespace: dict[str, Any], limit_s: float = PROGRAM_S
) -> str:
    """Execute a block, `await` at top level included; answers what it printed."""
    # Line numbers as on the page, so that a traceback points there.
    source = "\n" * (block.line - 1) + block.text
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code = compile(source, page, "exec", flags, dont_inherit=True)  # our __future__ is not theirs
    out = io.StringIO()
    with contextlib.redirect_stdout(out), loggers_restored():
        answer = eval(code, namespace)
        if inspect.isawaitable(answer):
            async with asyncio.timeout(limit_s):
                await answer
    return out.getvalue()


def run_program(block: Block, options: Mapping[str, Any], folder: Path) -> str:
    """Run a block as a program: until it ends, or has printed what the page says; then Ctrl-C."""
    file = folder / f"line_{block.line}.py"
    file.write_text(PRELUDE.format(defaults=dict(options)) + block.text)
    output = folder / f"line_{block.line}.txt"
    with output.open("w") as out:
        running = subprocess.Popen(
            [sys.executable, "-u", file], stdout=out, stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
    with running:
        deadline = time.monotonic() + PROGRAM_S
        while running.poll() is None and time.monotonic() < deadline:
            if block.prints and matches(block.prints, output.read_text()):
                running.send_signal(signal.SIGINT)
                break
            time.sleep(0.02)
        try:
            _, complaints = running.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    assert running.returncode in (0, -signal.SIGINT), complaints
    return output.read_text()


def matches(expected: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)
