"""What `make demo` shows: half a minute in the life of a shop, and what Spark makes of it.

1. producers add jobs in waves, a worker runs them; some fail, some wait, some die;
2. Spark brings all that happened into a lake, and makes figures and a page of it;
3. what jobs died of is looked at, the cause is repaired, and they are brought back.

python examples/demo.py [--seconds 20] [--out .cache/demo]
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import random
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from place import redis_url
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from chasquimq import Job, Queue, RepeatPattern, UnrecoverableError, Worker
from chasquimq.cli import main as chasqui

QUEUE = "shop"
TURN_S = 0.1  # between two waves
NEXT = """\
Next:
  open the report in a browser: it is one file, and needs no network
  examples/quickstart.py                     the shortest program
  docs/tutorial/first-job.md                 your own first job, in a minute
  docs/how-to/spark/keep-what-happened.md    your own lake
  README.md                                  what is promised, and what is not
"""


class Shop:
    """Handlers for every name. The bank is slow at noon, and two things are broken for now."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.repaired = False
        self._dice = random.Random(7)

    async def handle(self, job: Job) -> None:
        self.ran[job.name] += 1
        match job.name:
            case "welcome-mail":
                await asyncio.sleep(self._dice.uniform(0.002, 0.02))
            case "charge-card":
                await asyncio.sleep(self._dice.lognormvariate(-4.5, 0.6))
                if job.attempt == 0 and self._dice.random() < 0.15:
                    raise ConnectionError(f"the bank hung up after {self._dice.randrange(900)} ms")
            case "import-csv" if not self.repaired:
                raise UnrecoverableError(f"/data/{job.data['file']} has no header")
            case "sync-crm" if not self.repaired:
                raise TimeoutError(f"customer {job.data['customer']}: no answer within 30 s")


async def produce(queue: Queue, seconds: float, progress: Progress) -> int:
    """Waves of jobs; answers how many."""
    await queue.add("heartbeat", None, repeat=RepeatPattern.every(1_000), limit=int(seconds))
    bar = progress.add_task("adding and running", total=seconds, jobs="")
    added, begin = 0, time.monotonic()
    while (passed := time.monotonic() - begin) < seconds:
        wave = 1 + math.sin(passed / seconds * 4 * math.pi)
        jobs = [
            {"name": "thumbnail", "data": {"image": added + number}}
            for number in range(int(60 * wave) + 10)
        ]
        jobs += [{"name": "welcome-mail", "data": {"user": added + n}} for n in range(15)]
        jobs += [
            {"name": "charge-card", "data": {"order": added + n}, "attempts": 4, "backoff": 200}
            for n in range(5)
        ]
        jobs.append({"name": "reminder", "data": {"user": added}, "delay_ms": 1_500})
        if added % 3 == 0:
            jobs.append({"name": "import-csv", "data": {"file": f"{added}.csv"}})
            jobs.append({"name": "sync-crm", "data": {"customer": added}, "attempts": 2,
                         "backoff": 100})  # fmt: skip
        added += len(await queue.add_bulk(jobs))
        progress.update(bar, completed=passed, jobs=f"{added:,} jobs")
        await asyncio.sleep(TURN_S)
    progress.update(bar, completed=seconds)
    return added


async def live(url: str, seconds: float) -> Counter[str]:
    shop = Shop()
    worker = Worker(QUEUE, shop.handle, redis_url=url, concurrency=30)
    columns = ("{task.description}", "{task.fields[jobs]}")
    with Progress(
        TextColumn(columns[0]), BarColumn(), TextColumn(columns[1]), TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:  # fmt: skip
        async with Queue(QUEUE, redis_url=url) as queue, asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await produce(queue, seconds, progress)
            await drained(queue)
            await worker.close()
    return shop.ran


async def drained(queue: Queue) -> None:
    while True:
        counts = await queue.counts()
        if not (counts.waiting or counts.running or counts.delayed):
            return
        await asyncio.sleep(TURN_S)


async def run_again(url: str) -> Counter[str]:
    """The cause is repaired; what was brought back runs."""
    shop = Shop()
    shop.repaired = True
    await Worker(QUEUE, shop.handle, redis_url=url, burst=True).run()
    return shop.ran


def spark(*words: str) -> None:
    """A command as people type it; all of them share this process, and so one Spark."""
    print(f"\n$ chasqui spark {' '.join(words)}\n", flush=True)
    code = chasqui(["spark", *words])
    if code:
        sys.exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long jobs are added")
    parser.add_argument("--out", type=Path, default=Path(".cache/demo"), help="lake and report")
    given = parser.parse_args()
    begin = time.monotonic()
    report = given.out / "report.html"
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    print("ChasquiMQ for Python: half a minute of jobs, and what Spark makes of it")
    with redis_url() as url:
        os.environ["CHASQUI_REDIS_URL"] = url
        os.environ["CHASQUI_LAKE"] = str(given.out / "lake")
        ran = asyncio.run(live(url, given.seconds))
        print(f"{ran.total():,} runs of handlers, of {len(ran)} names")
        spark("run", QUEUE, "--available-now", "--out", str(report))
        spark("rollup", "--total", "--sort", "failure_rate")
        spark("triage", QUEUE)
        spark("replay", QUEUE, "--all", "--yes")
        again = asyncio.run(run_again(url))
        print(f"\nrepaired, and run again: {again.total():,} jobs")
    print(
        f"\nDone in {time.monotonic() - begin:.0f} s. The report: {report.absolute()}\n\n{NEXT}",
        end="",
    )


if __name__ == "__main__":
    main()
