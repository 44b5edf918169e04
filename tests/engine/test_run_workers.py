"""run_workers in a program of its own: what its signals do, and what it says about them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.crew import add, until
from tests.engine.desk import Desk

PROGRAM = """
import asyncio, os
from chasquimq import Worker, run_workers

async def handle(job):
    print("began", flush=True)
    try:
        await asyncio.sleep(job.data)
        print("ended", flush=True)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

async def main():
    options = {"redis_url": os.environ["URL"], "dialect": os.environ["DIALECT"] or None}
    try:
        await run_workers(Worker(os.environ["QUEUE"], handle, drain_ms=600_000, **options))
        print("returned", flush=True)
    finally:
        await asyncio.sleep(0)
        print("cleaned up", flush=True)

asyncio.run(main())
"""
MINUTE = 60.0  # longer than any test waits


class Program:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def said(self) -> str:
        return self._log.read_text()

    def hears(self, text: str, count: int = 1) -> None:
        until(lambda: self.said.count(text) >= count, text)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        return self.process.wait(30)


@pytest.fixture
def begin(desk: Desk, tmp_path: Path) -> Iterator[Callable[[], Program]]:
    """Start the program; its output and its log are one text."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> Program:
        log = tmp_path / f"log-{len(started)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "URL": desk.server.url,
                    "DIALECT": desk.server.forced_dialect or "",
                    "QUEUE": desk.name,
                },
            )
        started.append(process)
        return Program(process, log)

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_first_signal_says_what_it_waits_for_and_lets_jobs_end(
    desk: Desk, begin: Callable[[], Program]
) -> None:
    add(desk.server, desk.name, "nap", 3, 1.0)
    program = begin()
    program.hears("began", 3)
    program.send(signal.SIGINT)
    program.hears("stopping: waiting up to 600 s for 3 running jobs; press Ctrl-C again to stop at")
    assert program.ends() == 0
    assert program.said.count("ended") == 3
    assert program.said.endswith("returned\ncleaned up\n")
    assert (desk.waiting(), desk.pending()) == (0, [])


@pytest.mark.parametrize(
    ("number", "code", "again"),
    [(signal.SIGINT, -signal.SIGINT, "press Ctrl-C"), (signal.SIGTERM, 143, "send SIGTERM")],
)
def test_the_second_signal_gives_jobs_back_at_once(
    number: signal.Signals, code: int, again: str, desk: Desk, begin: Callable[[], Program]
) -> None:
    add(desk.server, desk.name, "nap", 3, MINUTE)
    program = begin()
    program.hears("began", 3)
    program.send(number)
    program.hears(f"for 3 running jobs; {again} again to stop at once")
    program.send(number)
    program.hears("stopping at once: cancelling 3 running jobs and giving them back")
    assert program.ends() == code
    assert (program.said.count("cancelled"), "returned" in program.said) == (3, False)
    assert "cleaned up" in program.said
    assert (desk.waiting(), desk.pending(), desk.delayed()) == (3, [], 0)
    assert [envelope.attempt for envelope in desk.envelopes()] == [1] * 3, "they have started"


def test_nothing_runs_and_the_signal_says_so(desk: Desk, begin: Callable[[], Program]) -> None:
    add(desk.server, desk.name, "nap", 1, 0.0)
    program = begin()
    program.hears("ended")
    until(lambda: desk.left() == 0)
    program.send(signal.SIGTERM)
    assert program.ends() == 0
    assert "stopping: no job is running" in program.said
