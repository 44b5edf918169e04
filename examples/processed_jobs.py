"""A job is delivered twice, and the account is charged once: a note of the job's id decides.

python examples/processed_jobs.py

Delivery is at least once, so a worker that is killed between its effect and its ack leaves a job
that runs again. Here that really happens, by kill -9. The handler writes its effect and the job's
id in one transaction; the unique index on `processed_jobs` refuses the second.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from place import redis_url

from chasquimq import Job, Queue, Worker

QUEUE = "billing"
LEASE_MS = 1_000  # short, so that you need not wait the usual 30 s for the second delivery
TABLES = """
CREATE TABLE account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);
CREATE TABLE processed_jobs (job_id TEXT PRIMARY KEY);
INSERT INTO account VALUES ('ada', 10000);
"""


def charge(job: Job, file: Path) -> bool:
    """Charge an account; False if this job has done so before."""
    with closing(sqlite3.connect(file)) as database, database:  # one transaction
        note = database.execute(
            "INSERT INTO processed_jobs VALUES (?) ON CONFLICT DO NOTHING", (job.id,)
        )
        if note.rowcount == 0:
            return False
        database.execute(
            "UPDATE account SET cents = cents - ? WHERE name = ?",
            (job.data["cents"], job.data["account"]),
        )
        return True


def balance(file: Path) -> int:
    with closing(sqlite3.connect(file)) as database:
        [cents] = database.execute("SELECT cents FROM account WHERE name = 'ada'").fetchone()
    return int(cents)


async def work(url: str, file: Path, *, dawdle: bool) -> None:
    """A worker for one job. One that dawdles is busy between its effect and its ack."""

    def handle(job: Job) -> None:
        done = charge(job, file)
        what = "charged" if done else "was charged by an earlier run, so nothing is done"
        print(f"  run {job.attempt_number} of {job.id}: {job.data['account']} {what}", flush=True)
        if dawdle:
            time.sleep(20)

    await Worker(
        QUEUE,
        handle,
        redis_url=url,
        claim_min_idle_ms=LEASE_MS,
        max_jobs=1,
        max_runtime_ms=20_000,
    ).run()


def killed_in_the_gap(url: str, file: Path) -> None:
    """Run a worker in a process of its own, and kill it after its transaction."""
    program = [sys.executable, "-u", __file__, url, str(file)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout is not None
            print(worker.stdout.readline(), end="")  # its handler has committed
        finally:
            worker.kill()  # SIGKILL: no ack, no farewell


async def main(url: str, file: Path) -> None:
    with closing(sqlite3.connect(file)) as database:
        database.executescript(TABLES)
    async with Queue(QUEUE, redis_url=url) as queue:
        await queue.add("charge", {"account": "ada", "cents": 500}, job_id="invoice-7")
    print(f"ada has {balance(file)} cents and owes 500")

    print("first worker, which is killed before its ack:")
    await asyncio.to_thread(killed_in_the_gap, url, file)
    print(f"  it is dead; ada has {balance(file)} cents, and the job is still pending")

    print(f"second worker, which gets the job when the lease of {LEASE_MS} ms is over:")
    await work(url, file, dawdle=False)
    print(f"two runs, one charge: ada has {balance(file)} cents")


if len(sys.argv) > 1:
    asyncio.run(work(sys.argv[1], Path(sys.argv[2]), dawdle=True))
else:
    with redis_url() as url, tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(url, Path(folder) / "billing.sqlite"))
