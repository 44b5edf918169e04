"""Every example runs and says what it did, all in one session; and one as a program of its own."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from tests.examples.page import ROOT
from tests.servers import DIALECTS, Servers

EXAMPLES = ROOT / "examples" / "spark"
SHARED = "place.py"  # not an example: where they find a server
DB = 11  # a database of its own on the shared server

# What each must print, in this order; lines between are free.
PRINTS = {
    "01_queue_as_dataframe.py": [
        r"\|name  \|jobs\|oldest +\|its data +\|",
        r"\|charge\|100 \|20\d\d-.*\|\{\"order\":0,\"total\":0.0\} +\|",
        r"\|ship  \|40  \|20\d\d-.*\|\{\"order\":0,\"express\":true\}\|",
        r"\|charge\| 100\|51975.0\|      0\|",
        r"\|  ship\|  40\|   NULL\|     10\|",
        r"\|unrecoverable +\|.*UnrecoverableError\|4 +\|\d.csv has no header +\|",
        r"\|retries_exhausted\|.*RetryError +\|2 +\|the disk is full +\|",
        r"140 jobs still wait: reading took none of them",
    ],
    "02_bulk_enqueue.py": [
        r"after the first run: 900 jobs wait, 100 are delayed",
        r"after the second: 900 jobs wait, 100 are delayed",
        r"with those from Parquet: 1400 jobs wait, 100 are delayed",
    ],
    "03_events_to_parquet.py": [
        r"in the lake: 200 jobs that were completed",
        r"and then: 250",
        r"nothing new, nothing twice: 250",
        r"\|large\| +125\| +0\| +\d+\.\d\|",
        r"\|small\| +125\| +25\| +\d+\.\d\|",
    ],
    "04_stream_into_queue.py": [
        r"monday: 100 jobs",
        r"tuesday: 150 jobs",
        r"tuesday, played again: 150 jobs",
        r"with surveys: 300 jobs",
        r"from the start, without a checkpoint: 300 jobs",
    ],
    "05_handlers_on_executors.py": [
        r"\|flaky\|1 +\|retried +\|nobody answers +\|1 +\|",
        r"\|flaky\|2 +\|completed\|NULL +\|1 +\|",
        r"\|prime\|1 +\|buried +\|-1 is not a natural number\|1 +\|",
        r"\|prime\|1 +\|completed\|NULL +\|500 +\|",
        r"tasks that had work: \[0(, 1)?\]|tasks that had work: \[1\]",
        r"95 of them are prime; 1 job is dead",
    ],
    "06_triage_and_replay.py": [
        r"180 TimeoutError: <ip> did not answer within <n> s",
        r"90 LookupError: user <n> is gone",
        r"30 UnrecoverableError: no template <text> in <path>",
        r'for example: \{"user":\d+,"smtp":\{"password":"\*\*\*"\}\}',
        r"would replay: 180",
        r"replayed: 180",
        r"again, by mistake: 0",
        r"purged: 90",
        r"still dead: 30",
    ],
    "07_enqueue_files.py": [
        r"\|\{user0@example.org\} *\|reminder\|monday-0 *\|3 *\|",
        r"after the program: 200 jobs wait",
        r"0 rows came into queue mail-.*; 200 rows skipped: their ids were known",
        r"after the command: 200 jobs wait",
    ],
}


def check(example: str, printed: str) -> None:
    lines = iter(printed.splitlines())
    for wanted in PRINTS[example]:
        assert any(re.fullmatch(wanted, line) for line in lines), f"{wanted!r} not in\n{printed}"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("example", PRINTS)
def test_an_example_runs(
    example: str,
    spark: SparkSession,
    servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = servers.shared(DIALECTS[0])
    monkeypatch.setenv("CHASQUI_REDIS_URL", f"{server.url}/{DB}")
    monkeypatch.syspath_prepend(EXAMPLES)
    runpy.run_path(str(EXAMPLES / example), run_name="__main__")
    server.client(db=DB).flushdb()
    check(example, capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_example_is_a_program_and_brings_its_own_server() -> None:
    clean = {key: value for key, value in os.environ.items() if key != "CHASQUI_REDIS_URL"}
    clean["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives for seconds
    ended = subprocess.run(
        [sys.executable, EXAMPLES / "02_bulk_enqueue.py"],
        capture_output=True,
        text=True,
        timeout=250,
        cwd=ROOT,
        env=clean,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    check("02_bulk_enqueue.py", ended.stdout)
    assert "started for this example" in ended.stdout


def test_every_example_is_checked() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} - {SHARED} == set(PRINTS)
