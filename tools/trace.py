"""Which files and functions of ours a call goes through, and how often it changes file.

    python tools/trace.py add             figures and a table: the files, in the order of the walk
    python tools/trace.py run-job --tree  every call, indented below its caller
    python tools/trace.py promote --json  the same as JSON

A private server is started, the operation is done a few times to warm up (connections, caches, late
imports), then a few times more under `sys.setprofile`. The shortest of those walks is shown: what a
timer does meanwhile is not part of the operation. A coroutine that goes on after it waited is not
entered again. Several operations may be given: `trace.py add run-job`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count, groupby, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Self

from chasquimq import (
    Counts,
    Job,
    Promoter,
    Queue,
    RepeatPattern,
    Scheduler,
    UnrecoverableError,
    Worker,
)
from chasquimq.server import Server
from chasquimq.sync import Queue as SyncQueue

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "chasquimq"
WARM_UP = 3
ROUNDS = 5
QUIET_S = 0.1  # an operation has ended when nothing was entered for so long
PATIENCE_S = 30.0
# Newer versions of Python run these inside their function.
INLINE = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


@dataclass(frozen=True)
class Step:
    """A function that was entered, and how deep below the first one."""

    file: str
    function: str
    depth: int


@dataclass
class Walk:
    """The functions below a folder that are entered while it records, in their order."""

    folder: Path
    steps: list[Step] = field(default_factory=list)
    _depths: dict[FrameType, int] = field(default_factory=dict)
    _files: dict[str, str | None] = field(default_factory=dict)

    def __enter__(self) -> Self:
        threading.setprofile(self._hear)  # threads that are started from now on
        sys.setprofile(self._hear)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        self._depths.clear()

    def _hear(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame in self._depths or frame.f_code.co_name in INLINE:
            return
        file = self._file(frame.f_code.co_filename)
        if file is None:
            return
        depth = self._depths[frame] = self._depth_of(frame)
        self.steps.append(Step(file, frame.f_code.co_qualname, depth))

    def _depth_of(self, frame: FrameType) -> int:
        caller = frame.f_back
        while caller is not None:
            if caller in self._depths:
                return self._depths[caller] + 1
            caller = caller.f_back
        return 0

    def _file(self, name: str) -> str | None:
        """A file's path below the folder; None for the files of others."""
        if name not in self._files:
            path = Path(name)
            inside = path.is_relative_to(self.folder)
            self._files[name] = path.relative_to(self.folder).as_posix() if inside else None
        return self._files[name]

    @property
    def files(self) -> list[str]:
        """In the order in which they are entered first."""
        return list(dict.fromkeys(step.file for step in self.steps))

    @property
    def functions(self) -> int:
        return len({(step.file, step.function) for step in self.steps})

    @property
    def changes(self) -> int:
        """How often the next function that is entered lies in another file."""
        return sum(one.file != other.file for one, other in pairwise(self.steps))

    def figures(self) -> dict[str, int]:
        return {
            "files": len(self.files),
            "functions": self.functions,
            "calls": len(self.steps),
            "changes": self.changes,
        }


# -- operations ------------------------------------------------------------------------------------

Action = Callable[[], Awaitable[object]]
Operation = Callable[["Bench"], AbstractAsyncContextManager[Action]]


class Bench:
    """A queue of its own, and another thread that uses it, too.

    What that thread does is not recorded: adding the job that a worker is to run, and looking
    whether it has.
    """

    def __init__(self, url: str, name: str) -> None:
        self.at = {"redis_url": url}
        self.name = name
        self._beside = SyncQueue(name, redis_url=url)
        self._thread = ThreadPoolExecutor(1)

    async def beside(self, method: str, *args: Any, **options: Any) -> Any:
        call = partial(getattr(self._beside, method), *args, **options)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def until(self, holds: Callable[[Counts], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(await self.beside("counts")):
                pass

    def close(self) -> None:
        self._beside.close()
        self._thread.shutdown()


@asynccontextmanager
async def add(bench: Bench) -> AsyncIterator[Action]:
    async with Queue(bench.name, **bench.at) as queue:
        yield lambda: queue.add("mail", {"to": 1})


@asynccontextmanager
async def add_delayed(bench: Bench) -> AsyncIterator[Action]:
    async with Queue(bench.name, **bench.at) as queue:
        yield lambda: queue.add("mail", {"to": 1}, delay=timedelta(hours=1))


@asynccontextmanager
async def add_unique(bench: Bench) -> AsyncIterator[Action]:
    async with Queue(bench.name, **bench.at) as queue:
        yield lambda: queue.add("mail", {"to": 1}, job_id="invoice-7", unique_for=60)


@asynccontextmanager
async def add_bulk(bench: Bench) -> AsyncIterator[Action]:
    jobs = [{"name": "mail", "data": {"to": number}} for number in range(3)]
    async with Queue(bench.name, **bench.at) as queue:
        yield lambda: queue.add_bulk(jobs)


@asynccontextmanager
async def schedule(bench: Bench) -> AsyncIterator[Action]:
    async with Queue(bench.name, **bench.at) as queue:
        every_hour = RepeatPattern.every(3_600_000)
        yield lambda: queue.upsert_repeatable_job("mail", {"to": 1}, repeat=every_hour)


@asynccontextmanager
async def counts(bench: Bench) -> AsyncIterator[Action]:
    async with Queue(bench.name, **bench.at) as queue:
        yield queue.counts


async def succeed(job: Job) -> None:
    pass


async def fail(job: Job) -> None:
    raise ValueError("no")


async def fail_for_good(job: Job) -> None:
    raise UnrecoverableError("no")


def working(handler: Callable[[Job], Awaitable[None]]) -> Operation:
    """A worker whose lease and leaders are at rest meanwhile, and one job for it."""

    @asynccontextmanager
    async def operation(bench: Bench) -> AsyncIterator[Action]:
        numbers = count()

        async def one_job() -> None:
            # Each with a name of its own: failures of the same name are logged once a second.
            await bench.beside("add", f"mail-{next(numbers)}", {"to": 1})
            await bench.until(lambda now: now.waiting == now.running == 0)

        leaders: Any = {"run_scheduler": False, "delayed_enabled": False}
        worker = Worker(bench.name, handler, **bench.at, **leaders, backoff=timedelta(minutes=1))
        async with running(worker.run(), worker.stop):
            yield one_job

    return operation


@asynccontextmanager
async def running(run: Coroutine[Any, Any, None], stop: Callable[[], None]) -> AsyncIterator[None]:
    task = asyncio.create_task(run)
    try:
        yield
    finally:
        stop()
        await task


@asynccontextmanager
async def schedule_fires(bench: Bench) -> AsyncIterator[Action]:

    async def one_fire() -> None:
        before = (await bench.beside("counts")).waiting
        await bench.until(lambda now: now.waiting > before)

    await bench.beside("upsert_repeatable_job", "mail", {"to": 1}, repeat=RepeatPattern.every(500))
    scheduler = Scheduler(bench.at["redis_url"], bench.name)
    async with running(scheduler.run(), scheduler.shutdown):
        yield one_fire


@asynccontextmanager
async def promote(bench: Bench) -> AsyncIterator[Action]:

    async def one_job() -> None:
        await bench.beside("add", "mail", {"to": 1}, delay_ms=200)
        await bench.until(lambda now: now.delayed == 0)

    promoter = Promoter(bench.at["redis_url"], bench.name)
    async with running(promoter.run(), promoter.shutdown):
        yield one_job


OPERATIONS: dict[str, tuple[str, Operation]] = {
    "add": ("Queue.add with a name and data", add),
    "add-delayed": ("Queue.add with a delay", add_delayed),
    "add-unique": ("Queue.add with an id that is taken already", add_unique),
    "add-bulk": ("Queue.add_bulk with three jobs", add_bulk),
    "schedule": ("Queue.upsert_repeatable_job", schedule),
    "counts": ("Queue.counts", counts),
    "run-job": ("a Worker reads a job, runs it and acks it", working(succeed)),
    "retry-job": ("a Worker runs a job that fails, and retries it later", working(fail)),
    "fail-job": ("a Worker moves a job that fails to the DLQ", working(fail_for_good)),
    "schedule-fires": ("a Scheduler makes a job from a spec that is due", schedule_fires),
    "promote": ("a Promoter moves a delayed job that is due to the stream", promote),
}


async def record(operation: Operation, url: str, name: str) -> Walk:
    """The walk of one operation on a queue of this name: the median of some."""
    bench = Bench(url, name)
    walks = []
    try:
        async with operation(bench) as act:
            for number in range(WARM_UP + ROUNDS):
                with Walk(SOURCE) as walk:
                    await act()
                    await settle(walk)
                if number >= WARM_UP:
                    walks.append(walk)
    finally:
        bench.close()
    return sorted(walks, key=lambda walk: len(walk.steps))[ROUNDS // 2]


async def settle(walk: Walk) -> None:
    """Wait until nothing more was entered for a moment: acks and events follow the operation."""
    before = -1
    while len(walk.steps) > before:
        before = len(walk.steps)
        await asyncio.sleep(QUIET_S)


# -- what is printed -------------------------------------------------------------------------------


def as_tree(walk: Walk) -> Iterator[str]:
    """One line for each call; calls that are repeated at once share one."""
    for step, same in groupby(walk.steps):
        times = len(list(same))
        again = f"  x{times}" if times > 1 else ""
        yield f"{'  ' * step.depth}{step.file}  {step.function}{again}"


def as_table(walk: Walk) -> Iterator[str]:
    """The files in the order in which they are entered first."""
    calls = Counter(step.file for step in walk.steps)
    functions = Counter(file for file, _ in {(step.file, step.function) for step in walk.steps})
    width = max(len(file) for file in walk.files)
    yield f"{'file':<{width}}  functions  calls"
    for file in walk.files:
        yield f"{file:<{width}}  {functions[file]:>9}  {calls[file]:>5}"


def summary(name: str, walk: Walk) -> str:
    told = walk.figures()
    return (
        f"{name}: {told['files']} files, {told['functions']} functions, "
        f"{told['calls']} calls, {told['changes']} changes of file"
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Which files and functions of ours a call goes through.",
        epilog="\n".join(f"{name:<15} {what}" for name, (what, _) in OPERATIONS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("operations", nargs="+", choices=OPERATIONS, metavar="OPERATION")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--tree", action="store_true", help="every call, below its caller")
    form.add_argument("--json", action="store_true", help="everything, as JSON")
    options = parser.parse_args(argv)

    # Failures are part of some operations: what they log need not be seen.
    logging.getLogger("chasquimq").addHandler(logging.NullHandler())
    with Server() as server:
        walks = {
            name: asyncio.run(record(OPERATIONS[name][1], server.url, name))
            for name in dict.fromkeys(options.operations)
        }
    if options.json:
        rows = {
            name: {**walk.figures(), "walk": [asdict(step) for step in walk.steps]}
            for name, walk in walks.items()
        }
        print(json.dumps(rows, indent=2))
        return
    for name, walk in walks.items():
        for line in (as_tree if options.tree else as_table)(walk):
            print(line)
        print(summary(name, walk))


if __name__ == "__main__":
    main()
