"""One process of `chasqui worker`: load the target, run its Workers, do as the supervisor says.

    python -m chasquimq.cli.crew.child <descriptor of its end of the socket pair>

1. hear the orders, import the target, say what was found, and wait for the word to run;
2. run the Workers; answer what is asked, and watch the limits (`--max-jobs`, `--max-memory`);
3. stop: when told to, on SIGTERM, at a limit, or when the supervisor is gone, however it died.

A stop gives handlers the time that they have (`drain_ms`). Beyond that, and a little for the
farewell, a thread ends the process: nothing that a handler does keeps it as an orphan.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from chasquimq.address import read_url
from chasquimq.cli.crew.gauge import Gauge
from chasquimq.cli.crew.line import Line
from chasquimq.cli.crew.memory import resident
from chasquimq.cli.crew.message import (
    HELD_SIGNALS,
    Ended,
    Failed,
    Full,
    Loaded,
    Orders,
    Post,
    Ready,
    Role,
    State,
    Stopping,
    Trouble,
    Verb,
)
from chasquimq.cli.crew.target import folder_of, load
from chasquimq.cli.exits import Exit
from chasquimq.errors import ChasquiError, ConfigError, StoreError, StoreUnavailableError
from chasquimq.observe.metrics import JobOutcome, MetricsSink, ReaderBatch
from chasquimq.observe.record import Recorder
from chasquimq.text import shown, told
from chasquimq.worker import Worker, run_workers

FAREWELL_S = 4.5  # after its drain deadline, or when told to stop now, a process is gone by then
LOOK_S = 0.02
WATCH_S = 0.1
MOST_WORDS, MOST_TRACE = 4_096, 16_384  # characters of what an error says
LINE = "\n"


class Tally(MetricsSink):
    """What the Workers of this process have read and run."""

    def __init__(self) -> None:
        self.read = self.jobs = self.failed = 0

    def reader_batch(self, batch: ReaderBatch) -> None:
        self.read += batch.size

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.jobs += 1
        self.failed += outcome.kind != "ok"


class Child:
    def __init__(self, line: Line, orders: Orders) -> None:
        self._line = line
        self._orders = orders
        self._tally = Tally()
        self._recorders: list[Recorder] = []
        self._workers: list[Worker] = []
        self._loop: asyncio.AbstractEventLoop | None = None  # once the target is loaded
        self._go = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._stopping: str | None = None
        self._ready = False
        self._measure = asyncio.Event()  # somebody wants to know how full the queues are

    # -- what is heard: from the line's thread, or from a signal -------------------------------

    def heard(self, verb: Verb | None) -> None:
        if verb is None:
            _hush()
            self._end("the supervisor is gone")
        elif verb == "stop":
            self._end("told to")
        else:
            if verb == "now":
                _fuse(FAREWELL_S)
            self._soon(self._obey, verb)

    def terminated(self) -> None:
        self._end("SIGTERM")

    def _end(self, why: str) -> None:
        if self._loop is None:  # it holds nothing yet, and an import may take long
            self._line.say(Stopping(why))
            self._line.close()
            os._exit(Exit.DONE)
        _fuse(self._drain_s + FAREWELL_S)
        self._soon(self._drain, why)

    def _soon(self, call: Callable[..., None], *args: Any) -> None:
        if self._loop is None:
            if args == ("now",):
                os._exit(Exit.DONE)
            return
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            pass  # the loop has ended, and so will we

    @property
    def _drain_s(self) -> float:
        return max((one.options.drain_ms for one in self._workers), default=0) / 1000

    # -- and done in the event loop --------------------------------------------------------------

    def _obey(self, verb: Verb) -> None:
        if verb == "run":
            self._go.set()
        elif verb == "state":
            self._line.say(self._state())
        elif verb == "depths":
            self._measure.set()
        else:
            self._stopping = self._stopping or "told to, now"
            self._go.set()
            if self._running is not None:
                self._running.cancel()  # handlers are cancelled, their jobs given back

    def _drain(self, why: str) -> None:
        self._say_stopping(why)
        self._go.set()
        for worker in self._workers:
            worker.stop()

    def _say_stopping(self, why: str) -> None:
        if self._stopping is None:
            self._stopping = why
            self._line.say(Stopping(why))

    # -- its life --------------------------------------------------------------------------------

    async def main(self) -> int:
        try:
            workers = await load(self._orders.target)
            notes = [note for worker in workers for note in self._adjust(worker)]
        except ConfigError as error:
            return self._failed("config", error, getattr(error, "trace", ""))
        self._workers, self._loop = workers, asyncio.get_running_loop()
        kind = type(self._loop).__module__.partition(".")[0]
        folder = folder_of(self._orders.target)
        self._line.say(Loaded([_role(one) for one in workers], kind, folder, notes))
        await self._go.wait()
        if self._stopping is None:
            broken = await self._run()
            if broken is not None:
                return self._broken(broken)
            if self._is_full():
                self._say_stopping("--max-jobs")
        self._line.say(Ended(self._state()))
        return Exit.DONE

    async def _run(self) -> Exception | None:
        """Run the Workers to their end, and watch them; what broke them, if something did."""
        broken: list[Exception] = []

        async def run() -> None:
            try:
                await run_workers(*self._workers, signals=False)
            except Exception as error:
                broken.append(error)

        async with asyncio.TaskGroup() as group:
            self._running = group.create_task(run())
            beside = [group.create_task(self._watch())]
            if self._orders.metrics:
                beside.append(group.create_task(self._gauge()))
            await asyncio.wait([self._running])
            for task in beside:
                task.cancel()
        return broken[0] if broken else None

    def _adjust(self, worker: Worker) -> list[str]:
        """Let the command line have its say; answers what the user should know of it."""
        orders = self._orders
        name = worker.consumer_id
        if name is not None and orders.processes > 1:
            name = f"{name}-{orders.index}"
        before = str(worker.address)
        sinks: list[MetricsSink] = [self._tally]
        if orders.metrics:
            self._recorders.append(Recorder(worker.name))
            sinks.append(self._recorders[-1])
        worker.adjust(
            redis_url=orders.redis_url,
            dialect=orders.dialect,
            concurrency=orders.concurrency,
            burst=orders.burst or None,
            max_jobs=orders.max_jobs,
            drain_ms=orders.drain_ms,
            consumer_id=name,
            metrics=sinks,
            log_runs=orders.log_runs or None,
        )
        if orders.redis_url is None or str(worker.address) != before:
            return []
        if str(read_url(orders.redis_url, secret_elsewhere=True)) == before:
            return []
        return [f"the Worker of {worker.name!r} has a redis_url of its own: {worker.address}"]

    async def _watch(self) -> None:
        """Say when all have begun; then keep to the limits."""
        while not self._have_begun():  # noqa: ASYNC110 - a Worker tells nobody
            await asyncio.sleep(LOOK_S)
        self._ready = True
        self._line.say(Ready([str(one.dialect) for one in self._workers], resident()))
        orders = self._orders
        while orders.max_jobs is not None or orders.max_bytes is not None:
            if self._is_full() and len(self._workers) > 1:
                self._drain("--max-jobs")
            elif self._has_all():
                # It ends by itself, when the last of them has; its successor may begin.
                self._say_stopping("--max-jobs")
            if orders.max_bytes is not None and self._tally.jobs and resident() > orders.max_bytes:
                self._drain("--max-memory")
            await asyncio.sleep(WATCH_S)

    def _have_begun(self) -> bool:
        return all(one.health().state not in ("new", "starting") for one in self._workers)

    def _is_full(self) -> bool:
        """Whether this process has run as many jobs as it may. A single Worker keeps to the limit
        by itself, and exactly; several together run over it by what runs at that moment."""
        tally, most = self._tally, self._orders.max_jobs
        count = tally.read if len(self._workers) == 1 else tally.jobs
        return most is not None and count >= most

    def _has_all(self) -> bool:
        most = self._orders.max_jobs
        if most is None or len(self._workers) > 1:
            return False
        return self._workers[0].health().counters.read >= most

    def _state(self) -> State:
        return State(
            self._tally.jobs,
            self._tally.failed,
            resident(),
            [_post(worker) for worker in self._workers],
            [msgspec.to_builtins(one.snapshot()) for one in self._recorders],
        )

    async def _gauge(self) -> None:
        gauge = Gauge(self._workers)
        try:
            while True:
                await self._measure.wait()
                self._measure.clear()
                self._line.say(Full(await gauge.look()))
        finally:
            await gauge.close()

    # -- how it fails ----------------------------------------------------------------------------

    def _broken(self, error: BaseException) -> int:
        if isinstance(error, ConfigError):
            return self._failed("config", error)
        if isinstance(error, StoreUnavailableError) and not self._ready:
            return self._failed("unavailable", error)
        if isinstance(error, StoreError) and not self._ready:
            return self._failed("access", error)
        self._line.say(Ended(self._state()))
        if isinstance(error, ChasquiError):
            return self._failed("error", error)
        return self._failed("error", error, "".join(traceback.format_exception(error)))

    def _failed(self, kind: Trouble, error: BaseException, trace: str = "") -> int:
        words = _words(error)
        if not isinstance(error, ChasquiError):
            words = f"{type(error).__name__}: {words}"
        self._line.say(Failed(kind, shown(told(words, MOST_WORDS)), _plain(trace)))
        return {"config": Exit.USAGE, "error": Exit.FAILED}.get(kind, Exit.NO_SERVER)


def _words(error: BaseException) -> str:
    try:
        return Exception.__str__(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _plain(trace: str) -> str:
    """A traceback as a terminal may show it, without secrets; of a long one its ends. It is
    indented: what an error says over several lines must not look like a record."""
    if len(trace) > 2 * MOST_TRACE:
        first, last = trace[:MOST_TRACE], trace[-MOST_TRACE:]
        trace = f"{first.rpartition(LINE)[0]}{LINE}  ...{LINE}{last.partition(LINE)[2]}"
    return "".join(f"    {shown(one)}{LINE}" for one in told(trace, 2 * MOST_TRACE).splitlines())


def _role(worker: Worker) -> Role:
    options = worker.options
    return Role(
        worker.name,
        options.group,
        str(worker.address),
        options.concurrency,
        options.drain_ms,
        worker.consumer_id is not None,
    )


def _post(worker: Worker) -> Post:
    health = worker.health()
    wrong = list(health.problems)
    if health.stalled is not None:
        wrong.append(f"it is stalled: {health.stalled}")
    if not health.healthy and not wrong:
        wrong = [f"it is {health.state}"]
    return Post(worker.name, health.healthy, wrong, health.to_dict(), health.stalled)


def _fuse(seconds: float) -> None:
    """End this process by then, whatever keeps it."""
    burning = threading.Timer(seconds, os._exit, (Exit.FAILED,))
    burning.daemon = True
    burning.start()


def _hush() -> None:
    """Nobody reads our stderr any more: what handlers write there is not to fail them."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _new_loop(wanted: bool) -> asyncio.AbstractEventLoop:
    if wanted:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
            return loop
    return asyncio.new_event_loop()


def main(descriptor: str) -> int:
    line = Line(socket.socket(fileno=int(descriptor)))
    orders = line.orders()
    if orders is None:
        return Exit.DONE
    from chasquimq.cli.log import set_up

    set_up(orders.log_format, orders.log_level)
    faulthandler.enable()
    with asyncio.Runner(loop_factory=lambda: _new_loop(orders.uvloop)) as runner:
        runner.get_loop()
        child = Child(line, orders)
        # Ctrl-C reaches every process of a terminal, and its closing, too: what follows from it
        # is the supervisor's business. A handler, not SIG_IGN, which programs would inherit.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: child.terminated())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD_SIGNALS)
        line.listen(child.heard)
        code = runner.run(child.main())
        _fuse(FAREWELL_S)  # threads of handlers, and what runs at exit, are not waited for longer
    line.close()
    for number in HELD_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # Python would give them back their deadly default
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
