"""Every example runs as a real program, ends by itself and says what it did."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from tests.examples.page import ROOT
from tests.servers import DIALECTS, Dialect, Servers

EXAMPLES = ROOT / "examples"
SHARED = "place.py"  # not a program: where the examples find a server
DEMO = "demo.py"  # it takes Spark: tests/pipelines looks at it

DB = 10  # a database of its own on the shared server

# What each must print, in this order; lines between are free.
PRINTS = {
    "quickstart.py": [
        r"added [0-9A-Z]{26}",
        r"  welcome: hello ada",
        r"  welcome: hello grace",
        r"  welcome: hello edsger",
        r"greeted 3 users",
    ],
    "retries.py": [
        r"  flaky: run 1",
        r"  flaky: run 2",
        r"  flaky: run 3",
        r"dead:",
        r"  wrong: unrecoverable after run 1, UnrecoverableError: no such user",
        r"  hopeless: retries_exhausted after run 2, TimeoutError: no answer, as always",
    ],
    "delayed.py": [
        r"cancelled: True",
        r"cancelled again: False",
        r"  \d\.\d s  now",
        r"  \d\.\d s  half a second",
        r"  \d\.\d s  once",
        r"  \d\.\d s  one second",
        r"  \d\.\d s  at a moment",
        r"5 jobs ran",
    ],
    "bulk.py": [
        r"added 10000 jobs in \d+\.\d+ s",
        r"refused: CMQ-004: .*did you mean 'data'\?.*nothing was sent.*",
        r"refused: CMQ-030: .*",
        r"ran 10000 jobs in \d+\.\d+ s",
    ],
    "graceful_stop.py": [
        r"first worker:",
        r"  \(SIGTERM comes in\)",
        r"  job 2 ends",
        r"stopped with 3 of 8 done",
        r"second worker did the rest: 8 runs of 8 jobs, \[0, 1, 2, 3, 4, 5, 6, 7\]",
    ],
    "router.py": [
        r"  welcome: a mail to ada",
        r"  report: TimeLimitError, again in \d+ ms",
        r"  report: done on run 2",
        r"imported 100 rows in all",
        r"dead: NoHandlerError: .*no handler for jobs named 'invoice'.*",
        r"brought back: 1",
        r"  invoice: taken by the one for all other names",
    ],
    "processed_jobs.py": [
        r"ada has 10000 cents and owes 500",
        r"first worker, which is killed before its ack:",
        r"  run 1 of invoice-7: ada charged",
        r"  it is dead; ada has 9500 cents, and the job is still pending",
        r"second worker, .*",
        r"  run 2 of invoice-7: ada was charged by an earlier run, so nothing is done",
        r"two runs, one charge: ada has 9500 cents",
    ],
    "schedules.py": [
        r"the next working days at nine:",
        r"  Europe/Berlin     \w{3} \d{4}-\d\d-\d\d 09:00 \+0[12]00   0[78]:00 UTC",
        r"  America/New_York  \w{3} \d{4}-\d\d-\d\d 09:00 -0[45]00   1[34]:00 UTC",
        r"written: clock::cron:\* \* \* \* \* \*:Asia/Kathmandu",
        r"written: heartbeat::every:200",
        r"written: warm-up::every:300",
        r"  \d+\.\d s  warm-up   of \d\d:\d\d:\d\d\.\d{3}",
        r"paused: True",
        r"  \d+\.\d s  heartbeat by hand",
        r"  \d+\.\d s  clock     of \d\d:\d\d:\d\d\.000",
        r"resumed: True",
        r"  \d+\.\d s  heartbeat of \d\d:\d\d:\d\d\.\d{3}",
        r"clock::cron:\* \* \* \* \* \*:Asia/Kathmandu fired \d+ times; removed: True",
        r"heartbeat::every:200 fired \d+ times; removed: True",
        r"3 warm-ups: that was its limit",
    ],
    "sync_queue.py": [
        r"ada: signed up",
        r"grace: signed up",
        r"edsger: signed up",
        r"mallory: rolled back, no such mailbox",
        r"two processes imported: 203 jobs wait",
        r"  a mail to (ada|grace|edsger)",
        r"  a mail to (ada|grace|edsger)",
        r"  a mail to (ada|grace|edsger)",
        r"the report has 200 users",
    ],
    "jobs.py": [
        r"  added     5000 of 5000",
        r"  done      5246 of 5246",
        r"What became of them",
        r"  thumbnail      5000       5000  5000        0       0",
        r"  welcome-mail    200        200   200        0       0",
        r"  charge-card      20         20    39       19       0",
        r"  reminder         20         20    20        0       0",
        r"  invoice           1          1     1        0       0",
        r"  heartbeat         5          5     5        0       0",
        r"  sync-crm          3          0     9        6       3",
        r"  import-csv        3          0     3        0       3",
        r"Dead letters .*",
        r"  import-csv +unrecoverable +1  UnrecoverableError: 0\.csv has no header",
        r"  sync-crm +retries_exhausted +3  RetryError: still down",
        r"[\d,]+ jobs a second added in bulk, [\d,]+ a second run",
        r"  6 jobs back in the queue",
        r"  0 dead letters left, 5252 jobs completed in all",
        r"Done in \d+\.\d s\.",
        r"Next:",
    ],
}


def run(example: str, environment: Mapping[str, str]) -> str:
    """The output of an example that succeeded."""
    clean = {key: value for key, value in os.environ.items() if key != "CHASQUI_REDIS_URL"}
    ended = subprocess.run(
        [sys.executable, EXAMPLES / example],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        env={**clean, **environment},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not strange(ended.stderr)
    return ended.stdout


def strange(logged: str) -> list[str]:
    """What it logged, without failed runs, short leases and stops, which examples want."""
    known = re.compile(
        r"job '|and \d+ more failure|queue '.+': a lease of |stopping: "
        r"|Traceback |  |[\w.]+Error: "  # of a job that is moved to the DLQ
    )
    return [line for line in logged.splitlines() if not known.match(line)]


def check(example: str, printed: str) -> None:
    lines = iter(printed.splitlines())
    for wanted in PRINTS[example]:
        assert any(re.fullmatch(wanted, line) for line in lines), f"{wanted!r} not in\n{printed}"


@pytest.mark.parametrize(
    "dialect", [dialect for dialect in DIALECTS if dialect.forced is None], ids=lambda it: it.name
)
@pytest.mark.parametrize("example", PRINTS)
def test_an_example_runs(example: str, dialect: Dialect, servers: Servers) -> None:
    server = servers.shared(dialect)
    printed = run(example, {"CHASQUI_REDIS_URL": f"{server.url}/{DB}"})
    server.client(db=DB).flushdb()
    check(example, printed)
    assert "CHASQUI_REDIS_URL" in printed


@pytest.mark.parametrize("example", ["quickstart.py", "jobs.py"])
def test_an_example_brings_its_own_server(example: str) -> None:
    begin = time.monotonic()
    printed = run(example, {})
    check(example, printed)
    assert "started for this example" in printed
    assert time.monotonic() - begin < 15


def test_every_example_is_checked() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")} - {SHARED, DEMO}
    assert programs == set(PRINTS)


def test_what_make_demo_runs_is_there() -> None:
    assert f"examples/{DEMO}" in (ROOT / "Makefile").read_text()


def test_a_bar_is_for_a_terminal_only() -> None:
    assert "[###" not in run("jobs.py", {})
