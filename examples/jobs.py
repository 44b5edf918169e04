"""The job path at a glance: a mixed load, a worker, what became of every job, and a replay.

python examples/jobs.py
"""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence

from place import redis_url

from chasquimq import Job, Queue, RepeatPattern, RetryError, UnrecoverableError, Worker

BULK = 5_000
ORDER = (
    "thumbnail",
    "welcome-mail",
    "charge-card",
    "reminder",
    "invoice",
    "heartbeat",
    "sync-crm",
    "import-csv",
)
NEXT = """\
Next:
  examples/quickstart.py         the shortest program
  docs/tutorial/first-job.md     your own first job, in a minute
  docs/how-to/                   retries, delays, schedules, dead letters, stopping
  README.md                      what is promised, and what is not
"""


class Tally:
    """What the worker saw, by job name."""

    def __init__(self, expected: int) -> None:
        self.runs: Counter[str] = Counter()
        self.retried: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.last_at: dict[str, float] = {}  # when the last job of a name was completed
        self.expected = expected
        self.everything = asyncio.Event()

    def started(self, job: Job) -> None:
        self.runs[job.name] += 1
        self.retried[job.name] += job.attempt > 0

    def ended(self, job: Job) -> None:
        self.completed[job.name] += 1
        self.last_at[job.name] = time.perf_counter()
        if self.completed.total() == self.expected:
            self.everything.set()


class Shop:
    """The work: handlers for every name. It has a fault that gets repaired later on."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.repaired = False

    async def handle(self, job: Job) -> None:
        self.tally.started(job)
        match job.name:
            case "welcome-mail":
                await asyncio.sleep(0.01)
            case "charge-card" if job.attempt < job.data["fails"]:
                raise ConnectionError("the bank hung up")
            case "sync-crm" if not self.repaired:
                raise RetryError("still down", delay=100)
            case "import-csv" if not self.repaired:
                raise UnrecoverableError(f"{job.data['file']} has no header")
        self.tally.ended(job)


class Bar:
    """A progress bar on a terminal; a few plain lines where the output is piped."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total = what, total
        self.live = sys.stdout.isatty()
        self.shown = -1

    def show(self, done: int) -> None:
        quarters = 4 * done // self.total
        if self.live:
            full = 30 * done // self.total
            bar = "#" * full + "-" * (30 - full)
            end = "\n" if done == self.total else ""
            print(f"\r  {self.what:<8} [{bar}] {done:>5} of {self.total}", end=end, flush=True)
        elif quarters > self.shown:
            print(f"  {self.what:<8} {done:>5} of {self.total}", flush=True)
        self.shown = quarters


async def add_everything(queue: Queue) -> Counter[str]:
    """The mixed load; answers how many jobs of each name were accepted."""
    added: Counter[str] = Counter()
    for number in range(20):
        await queue.add("charge-card", {"fails": number % 3}, attempts=5, backoff=50)
        await queue.add("reminder", {"number": number}, delay_ms=300 + 60 * number)
        added.update(("charge-card", "reminder"))
    async with asyncio.TaskGroup() as group:  # adds of one moment share one write
        for number in range(200):
            group.create_task(queue.add("welcome-mail", {"user": number}))
            added["welcome-mail"] += 1
    for number in range(3):
        await queue.add("sync-crm", {"customer": number}, attempts=3)
        await queue.add("import-csv", {"file": f"{number}.csv"})
        added.update(("sync-crm", "import-csv"))
    for _ in range(3):  # three times the same id: one job
        await queue.add_unique("invoice", {"order": 7}, job_id="invoice:7")
    added["invoice"] += 1
    await queue.add("heartbeat", None, repeat=RepeatPattern.every(100), limit=5)
    added["heartbeat"] += 5  # by the worker, one every 100 ms
    await queue.add("newsletter", None, delay_ms=3_600_000, job_id="newsletter:1")
    assert await queue.cancel_delayed("newsletter:1")
    return added


async def watch(tally: Tally, bar: Bar) -> None:
    """Follow the worker until everything that can succeed has."""
    while not tally.everything.is_set():
        bar.show(tally.completed.total())
        try:
            await asyncio.wait_for(tally.everything.wait(), 0.02)
        except TimeoutError:
            pass
    bar.show(bar.total)


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Words to the left, numbers to the right."""
    widths = [max(len(str(row[at])) for row in (head, *rows)) for at in range(len(head))]
    numeric = [isinstance(cell, int) for cell in rows[0]]
    print(f"\n{title}")
    for row in (head, *rows):
        aligned = [
            str(cell).rjust(width) if number else str(cell).ljust(width)
            for cell, width, number in zip(row, widths, numeric, strict=True)
        ]
        print("  " + "  ".join(aligned).rstrip())


async def demo(url: str) -> None:
    name = f"demo-{uuid.uuid4().hex[:6]}"
    async with Queue(name, redis_url=url) as queue:
        print("\nAdding jobs of eight names (one thrice with one id, one cancelled, one scheduled)")
        added = await add_everything(queue)
        begin = time.perf_counter()
        bar = Bar("added", BULK)
        for at in range(0, BULK, 500):
            jobs = [{"name": "thumbnail", "data": {"image": at + n}} for n in range(500)]
            await queue.add_bulk(jobs)
            bar.show(at + 500)
        add_rate = BULK / (time.perf_counter() - begin)
        added["thumbnail"] = BULK

        doomed = added["sync-crm"] + added["import-csv"]
        tally = Tally(added.total() - doomed)
        shop = Shop(tally)
        # Many fail on purpose, and the table below counts them: the log need not tell of each.
        worker = Worker(name, shop.handle, redis_url=url, concurrency=50, log_failures=False)
        print("\nRunning a worker, 50 jobs at a time")
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            await watch(tally, Bar("done", tally.expected))
            dead = await buried(queue, doomed)
            report(added, tally, dead)
            run_rate = BULK / (tally.last_at["thumbnail"] - begin)
            print(f"\n{add_rate:,.0f} jobs a second added in bulk, {run_rate:,.0f} a second run")
            print("(here and now, events and retries on; `make bench-quick` measures properly)")

            print("\nThe cause is repaired: replaying the dead letters")
            shop.repaired = True
            tally.expected += doomed
            tally.everything.clear()
            print(f"  {await queue.replay_dlq()} jobs back in the queue", flush=True)
            await watch(tally, Bar("done", tally.expected))
            await worker.close()
        left = await queue.peek_dlq()
        print(f"  {len(left)} dead letters left, {tally.completed.total()} jobs completed in all")


async def buried(queue: Queue, count: int) -> list[dict[str, object]]:
    """The dead letters, once all that must fail have done so."""
    while True:
        dead = await queue.peek_dlq(100)
        if len(dead) >= count:
            return dead
        await asyncio.sleep(0.05)


def report(added: Counter[str], tally: Tally, dead: list[dict[str, object]]) -> None:
    graves = Counter(str(entry["name"]) for entry in dead)
    table(
        "What became of them",
        ("name", "added", "completed", "runs", "retried", "buried"),
        [
            (n, added[n], tally.completed[n], tally.runs[n], tally.retried[n], graves[n])
            for n in ORDER
        ],
    )
    table(
        "Dead letters (Queue.peek_dlq)",
        ("name", "reason", "runs", "error"),
        [(e["name"], e["reason"], e["attempt"], f"{e['error_type']}: {e['error']}") for e in dead],
    )


def main() -> None:
    begin = time.monotonic()
    print("ChasquiMQ for Python: a demonstration of the job path")
    with redis_url() as url:
        asyncio.run(demo(url))
    print(f"\nDone in {time.monotonic() - begin:.1f} s.\n\n{NEXT}", end="")


if __name__ == "__main__":
    main()
