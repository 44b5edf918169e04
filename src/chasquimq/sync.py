"""Queue for synchronous programs: the same Queue, on an event loop in a thread of ours.

1. a call makes its coroutine where it was called, hands it to the loop's thread, and waits;
2. that thread is one for all queues of the process: adds of many threads share their writes;
3. a forked child leaves alone what its parent has open, and begins anew with its first call;
4. at the interpreter's exit all queues are closed, and the thread ends.

No lock is shared between threads: one that is held while we fork would stay so in the child.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import os
import socket
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from chasquimq.address import Veiled
from chasquimq.errors import ChasquiError, ConfigError, ShutdownError
from chasquimq.job import Job
from chasquimq.queue import Queue as AsyncQueue

__all__ = ["Queue"]

log = logging.getLogger("chasquimq.queue")

P = ParamSpec("P")
R = TypeVar("R")
Make = Veiled[AsyncQueue]

GOODBYE_S = 5.0  # for what is on its way at exit
HANG_UP_S = 1.0  # for the rest, once that is over


def taking(door: Callable[P, AsyncQueue]) -> Callable[..., Callable[Concatenate[Queue, P], None]]:
    """An `__init__` with the parameters of the async Queue, which gets how to make one."""

    def decorate(init: Callable[[Queue, Make], None]) -> Callable[Concatenate[Queue, P], None]:
        @functools.wraps(AsyncQueue.__init__)
        def call(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> None:
            init(self, Veiled(door, *args, **kwargs))

        return call

    return decorate


def blocking(
    method: Callable[Concatenate[AsyncQueue, P], Coroutine[Any, Any, R]], *, closes: bool = False
) -> Callable[Concatenate[Queue, P], R]:
    """A method of the async Queue that blocks: same name, parameters, docstring and answer."""

    @functools.wraps(method)
    def call(self: Queue, /, *args: P.args, **kwargs: P.kwargs) -> R:
        thread, queue = _loop_thread(), self._here()
        thread.check_caller()
        try:
            answer: R = thread.call(queue, method(queue, *args, **kwargs), closes)
        except ChasquiError as error:
            self._adopt(getattr(error, "outcomes", None))
            raise
        self._adopt(answer)
        return answer

    return call


class Queue:
    """Adds jobs to one queue, and looks after its delayed and its dead ones; every call blocks.

    It connects on first use, may be shared by all threads and used on both sides of a fork, and
    may be used again after `close`. What was not closed is closed at exit.
    """

    @taking(AsyncQueue)
    def __init__(self, make: Make) -> None:
        self._make = make
        self._owned = self._own()

    def __reduce__(self) -> tuple[Any, ...]:
        """For a process that is spawned, not forked: the same options, nothing open."""
        return functools.partial(type(self), *self._make.args, **self._make.keywords), ()

    add = blocking(AsyncQueue.add)
    add_unique = blocking(AsyncQueue.add_unique)
    add_bulk = blocking(AsyncQueue.add_bulk)
    cancel_delayed = blocking(AsyncQueue.cancel_delayed)
    reschedule = blocking(AsyncQueue.reschedule)
    run_now = blocking(AsyncQueue.run_now)
    upsert_repeatable_job = blocking(AsyncQueue.upsert_repeatable_job)
    get_repeatable_jobs = blocking(AsyncQueue.get_repeatable_jobs)
    remove_repeatable_by_key = blocking(AsyncQueue.remove_repeatable_by_key)
    pause_repeatable = blocking(AsyncQueue.pause_repeatable)
    resume_repeatable = blocking(AsyncQueue.resume_repeatable)
    run_repeatable_now = blocking(AsyncQueue.run_repeatable_now)
    next_fires = blocking(AsyncQueue.next_fires)
    pause = blocking(AsyncQueue.pause)
    resume = blocking(AsyncQueue.resume)
    is_paused = blocking(AsyncQueue.is_paused)
    counts = blocking(AsyncQueue.counts)
    peek_dlq = blocking(AsyncQueue.peek_dlq)
    replay_dlq = blocking(AsyncQueue.replay_dlq)
    purge_dlq = blocking(AsyncQueue.purge_dlq)
    export_dlq = blocking(AsyncQueue.export_dlq)
    import_dlq = blocking(AsyncQueue.import_dlq)
    get_job_result = blocking(AsyncQueue.get_job_result)
    get_job_result_bulk = blocking(AsyncQueue.get_job_result_bulk)
    wait_for_result = blocking(AsyncQueue.wait_for_result)
    close = blocking(AsyncQueue.close, closes=True)

    def __repr__(self) -> str:
        return f"sync.{self._here()!r}"

    @property
    def name(self) -> str:
        return self._here().name

    @property
    def is_closed(self) -> bool:
        return self._here().is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _here(self) -> AsyncQueue:
        """The async Queue of this process: a child makes its own, and uses nothing of its
        parent's, not even a TLS context that another thread may have been at work with."""
        pid, queue = self._owned
        if pid != os.getpid():
            self._owned = _, queue = self._own()
        return queue

    def _own(self) -> tuple[int, AsyncQueue]:
        queue = self._make()
        # Where nobody holds on to the Queue any more, its connections end, too.
        weakref.finalize(self, _let_go, queue).atexit = False
        return os.getpid(), queue

    def _adopt(self, answer: object) -> None:
        """Jobs that were added here wait for their results here; those of specs for none."""
        for job in answer if isinstance(answer, list) else (answer,):
            if isinstance(job, Job) and hasattr(job, "_queue"):
                job._queue = self


class Call:
    """What a thread waits for, until `done` is released."""

    __slots__ = ("closes", "coroutine", "done", "error", "queue", "task", "value")

    def __init__(
        self, queue: AsyncQueue, coroutine: Coroutine[Any, Any, Any], closes: bool
    ) -> None:
        self.queue = queue
        self.coroutine = coroutine
        self.closes = closes
        self.value: Any = None
        self.error: BaseException | None = None
        self.task: asyncio.Task[None] | None = None
        self.done = threading.Lock()
        self.done.acquire()


class LoopThread:
    """An event loop in a thread, and what it has open. It ends when it is told to."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = Loop()
        self._open: set[AsyncQueue] = set()  # queues that were used and not closed
        self._calls: set[Call] = set()  # handed over, and not done
        self._told = asyncio.Event()
        # A daemon, because it has to live until the very exit, beyond all that are waited for.
        self._thread = threading.Thread(target=self._run, name="chasqui-sync", daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self._loop.close()
            raise

    def check_caller(self) -> None:
        if threading.get_ident() == self._thread.ident:
            raise ConfigError(
                "a sync Queue was called in its own event loop (by a credential_provider?), where "
                "it would wait for itself; use an async chasquimq.Queue, or none, there"
            )

    def call(self, queue: AsyncQueue, coroutine: Coroutine[Any, Any, R], closes: bool) -> R:
        """Run a coroutine and wait for it. Whoever is interrupted meanwhile gives it up."""
        call = Call(queue, coroutine, closes)
        try:
            self._calls.add(call)
            if not self._hand_over(self._begin, call):
                self._refuse(call)
            call.done.acquire()
        except BaseException:
            self._hand_over(self._give_up, call)
            raise
        error, call.error = call.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # or error, traceback and this frame hold on to each other
        value: R = call.value
        return value

    def let_go(self, queue: AsyncQueue) -> None:
        """Close a queue that nobody can use any more. This may be called anywhere, by the garbage
        collector."""
        self._hand_over(self._shut, queue)

    def tell(self) -> None:
        self._hand_over(self._told.set)

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def forsake(self) -> None:
        """Never touched again, in a child: the loop, its connections and its thread are the
        parent's. Who was waiting here when it forked (in a signal handler) need not wait on."""
        for call in list(self._calls):
            if call.done.locked():
                call.error = ShutdownError(
                    "the process was forked during this call; what became of it, its parent knows"
                )
                call.done.release()

    def _hand_over(self, function: Callable[..., None], *args: Any) -> bool:
        if self._pid != os.getpid():
            return False  # it is a parent's, which this would wake
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:  # it is closed
            return False
        return True

    def _refuse(self, call: Call) -> None:
        try:
            self._calls.remove(call)
        except KeyError:  # the other side has, just now
            return
        if call.task is None:
            call.coroutine.close()
        call.error = _ending()
        call.done.release()

    # -- inside the loop -------------------------------------------------------------------------

    def _run(self) -> None:
        """The thread's life."""
        life = self._loop.create_task(self._live())
        while not life.done():
            try:
                self._loop.run_until_complete(life)
            except (SystemExit, KeyboardInterrupt) as error:
                # A credential provider, asked again while reconnecting. It may not end the rest.
                log.warning("the event loop of chasquimq.sync goes on after %r", error)
        self._loop.close()
        for call in list(self._calls):  # handed over when it had run for the last time
            self._refuse(call)

    async def _live(self) -> None:
        await self._told.wait()
        closing = [self._loop.create_task(queue.close()) for queue in self._open]
        calls = [call.task for call in list(self._calls) if call.task is not None]
        if closing or calls:
            _, late = await asyncio.wait([*closing, *calls], timeout=GOODBYE_S)
            for task in late.intersection(calls):
                task.cancel()  # what a close may be waiting for
            if late:
                await asyncio.wait(late, timeout=HANG_UP_S)

    def _begin(self, call: Call) -> None:
        if self._told.is_set():
            self._refuse(call)
            return
        (self._open.discard if call.closes else self._open.add)(call.queue)
        call.task = self._loop.create_task(self._serve(call))  # in the caller's context

    async def _serve(self, call: Call) -> None:
        try:
            call.value = await call.coroutine
        except asyncio.CancelledError:
            call.error = _ending()
        except BaseException as error:  # whatever it is, the caller's side decides
            call.error = error
        self._calls.discard(call)
        call.done.release()

    def _give_up(self, call: Call) -> None:
        self._calls.discard(call)
        if call.task is None:
            call.coroutine.close()
        else:  # a turn later: one that never began could not tidy up
            self._loop.call_soon(call.task.cancel)

    def _shut(self, queue: AsyncQueue) -> None:
        if queue in self._open:
            call = Call(queue, queue.close(), closes=True)
            self._calls.add(call)
            self._begin(call)


class Loop(asyncio.SelectorEventLoop):
    """Looks up names in daemon threads. Those of an executor take no more work once the main
    thread has ended, and hold up the exit.
    asyncio's own, whatever is installed: uvloop's lookups crash a forked child when it exits.
    """

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        found: asyncio.Future[Any] = self.create_future()

        def tell(answer: Any, error: Exception | None) -> None:
            if found.done():
                return  # nobody waits any more
            if error is not None:
                found.set_exception(error)
            else:
                found.set_result(answer)

        def look_up() -> None:
            answer, error = None, None
            try:
                answer = socket.getaddrinfo(host, port, **options)
            except Exception as refused:
                error = refused
            with suppress(RuntimeError):  # it is closed
                self.call_soon_threadsafe(tell, answer, error)

        threading.Thread(target=look_up, name="chasqui-lookup", daemon=True).start()
        return await found


# -- one per process -----------------------------------------------------------------------------

_threads: dict[int, LoopThread] = {}  # by process: a fork need not go through Python
_forsaken: list[LoopThread] = []  # a parent's, kept so that nothing of theirs is finalized
_ended = False


def _loop_thread() -> LoopThread:
    if _ended:
        raise _ending()
    pid = os.getpid()
    thread = _threads.get(pid)
    if thread is None:
        fresh = LoopThread()
        thread = _threads.setdefault(pid, fresh)
        if thread is not fresh:  # another was first
            fresh.tell()
    return thread


def _let_go(queue: AsyncQueue) -> None:
    if (thread := _threads.get(os.getpid())) is not None:
        thread.let_go(queue)


def _ending() -> ShutdownError:
    return ShutdownError(
        "the interpreter is ending, and all queues of chasquimq.sync are closed; register your "
        "atexit function after the import of chasquimq.sync, and it comes first"
    )


def _at_exit() -> None:
    global _ended
    _ended = True
    if (thread := _threads.get(os.getpid())) is not None:
        thread.tell()
        thread.join(GOODBYE_S + 2 * HANG_UP_S)


def _in_child() -> None:
    _forsaken.extend(_threads.values())
    _threads.clear()
    for thread in _forsaken:
        thread.forsake()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # absent where there is no fork
    os.register_at_fork(after_in_child=_in_child)
