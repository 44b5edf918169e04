"""A worker that may not grow much, and notes what it ran and what was loaded meanwhile.

`python -m tests.security.app_bombs URL QUEUE` says `ready` when it has run a job. After the job
`last` it tells, as JSON, by how much it grew, what it ran, and what an audit hook heard.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

from chasquimq import Job, Queue, Worker

LIMIT_MIB = 512  # of addresses, beyond what is taken when the first job has run
NEVER = ("pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
loaded: list[str] = []
ran: list[str] = []


def notice(event: str, args: tuple[Any, ...]) -> None:
    if event in NEVER:
        loaded.append(f"{event} {args}")


def status(field: str) -> int:
    """MiB, as the kernel tells it. What `getrusage` calls the peak may be that of the parent."""
    found = re.search(rf"^{field}:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) // 1024


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def main(url: str, queue: str) -> None:
    first, last = asyncio.Event(), asyncio.Event()

    async def handle(job: Job) -> None:
        ran.append(job.name)
        if job.name in ("first", "last"):
            (first if job.name == "first" else last).set()

    dialect = os.environ["DIALECT"] or None
    worker = Worker(queue, handle, redis_url=url, dialect=dialect)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        async with Queue(queue, redis_url=url, dialect=dialect) as door:  # type: ignore[arg-type]
            await door.add("first", None)
        await first.wait()
        sys.addaudithook(notice)
        limit = (status("VmSize") + LIMIT_MIB) * 1024 * 1024
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        mib, began_s = status("VmRSS"), cpu_s()
        print("ready", flush=True)
        await last.wait()
        told = {"grown_mib": status("VmHWM") - mib, "cpu_s": round(cpu_s() - began_s, 2)}
        print(json.dumps({**told, "ran": sorted(ran), "loaded": loaded}), flush=True)
        await worker.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
