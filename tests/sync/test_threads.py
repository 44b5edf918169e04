"""Any number of threads share a queue, and one event loop that serves them all."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from chasquimq import ConfigError, StoreUnavailableError, sync
from tests.engine.wait import calls, finish, written_down
from tests.sync.counter import Counter, eventually, killed


class InterruptedError_(BaseException):
    """What a signal handler raises: KeyboardInterrupt is one, but it would end the test run."""


@contextmanager
def interrupting(when: Callable[[], Any]) -> Iterator[None]:
    """Interrupts the main thread once the condition holds, as Ctrl-C does."""

    def interrupt(*_: object) -> None:
        raise InterruptedError_

    def send() -> None:
        eventually(when)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def loop_thread() -> sync.LoopThread:
    return sync._loop_thread()


def test_many_threads_share_a_queue(counter: Counter) -> None:
    with counter.queue() as queue, ThreadPoolExecutor(16) as pool:
        jobs = list(pool.map(lambda n: queue.add("a", n), range(1000)))
        assert [job.data for job in jobs] == [*range(1000)]
        assert len({job.id for job in jobs}) == 1000
        assert len(counter.ours()) == 2
    assert sorted(counter.added()) == [*range(1000)]


def test_one_thread_serves_all_queues(counter: Counter) -> None:
    queues = [counter.queue() for _ in range(5)]
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda queue: queue.add("a", 1), queues))
    loops = [thread for thread in threading.enumerate() if thread.name == "chasqui-sync"]
    assert len(loops) == 1
    for queue in queues:
        queue.close()


def test_adds_of_many_threads_share_their_writes(counter: Counter) -> None:
    """Each write brings its own XLEN: so they can be counted."""
    with counter.queue() as queue, ThreadPoolExecutor(32) as pool:
        queue.add("a", 0)
        before = calls(counter.desk, "xlen")
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go_on.wait()

        loop_thread()._hand_over(hold)  # so that all of them come in one turn of the loop
        held.wait()
        adds = [pool.submit(queue.add, "a", n) for n in range(1, 33)]
        eventually(lambda: len(loop_thread()._calls) == 32)
        go_on.set()
        for add in adds:
            add.result()
        assert calls(counter.desk, "xlen") - before <= 3
    assert sorted(counter.added()) == [*range(33)]


def test_an_interrupted_call_is_given_up(counter: Counter) -> None:
    with counter.queue() as queue:
        with interrupting(lambda: written_down() == 1), pytest.raises(InterruptedError_):
            queue.wait_for_result("never", timeout=3600)
        eventually(lambda: written_down() == 0 and not loop_thread()._calls)
        queue.add("a", 1)
    assert counter.added() == [1]


@pytest.mark.filterwarnings("error:coroutine:RuntimeWarning")
def test_a_call_that_is_interrupted_before_it_began_is_given_up(counter: Counter) -> None:
    with counter.queue() as queue:
        queue.add("a", 0)
        held, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            go_on.wait()

        loop_thread()._hand_over(hold)
        held.wait()
        with interrupting(lambda: loop_thread()._calls), pytest.raises(InterruptedError_):
            queue.wait_for_result("never", timeout=3600)
        go_on.set()
        eventually(lambda: written_down() == 0 and not loop_thread()._calls)
        queue.add("a", 1)
    assert counter.added() == [0, 1]
    gc.collect()  # a coroutine that nobody awaited would complain now


def test_a_signal_handler_may_add_while_its_thread_waits(counter: Counter) -> None:
    def add(*_: object) -> None:
        queue.add("a", "from the handler")

    def send() -> None:
        eventually(lambda: written_down() == 1)
        os.kill(os.getpid(), signal.SIGUSR1)
        eventually(counter.added)
        finish(counter.desk, "awaited", value="done")

    before = signal.signal(signal.SIGUSR1, add)
    try:
        with counter.queue() as queue, ThreadPoolExecutor(1) as pool:
            sent = pool.submit(send)
            assert queue.wait_for_result("awaited", timeout=20) == "done"
            sent.result()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert counter.added() == ["from the handler"]


async def test_it_works_while_an_event_loop_runs_here(counter: Counter) -> None:
    """As in a notebook. The loop that runs here waits meanwhile."""
    with counter.queue() as queue:
        queue.add("a", 1)
    assert counter.added() == [1]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_who_calls_it_in_its_own_event_loop_is_told(kind: str, counter: Counter) -> None:
    """It would wait for itself, and with it everybody else."""
    other = counter.queue()

    def provider(host: str | None) -> tuple[None, None]:
        other.add("from the provider", 1)
        return None, None

    async def provider_too(host: str | None) -> tuple[None, None]:
        return provider(host)

    asked = provider if kind == "def" else provider_too
    with counter.queue(credential_provider=asked) as queue:
        with pytest.raises(ConfigError, match="in its own event loop"):
            queue.add("a", 1)
        other.add("a", 2)
    other.close()
    assert counter.added() == [2]


def test_a_provider_that_calls_sys_exit_does_not_end_the_loop(counter: Counter) -> None:
    """At the first login its caller hears of it; later nobody does, and it is asked again."""
    leaves = [False, True, True, False]

    def provider(host: str | None) -> tuple[None, None]:
        if leaves and leaves.pop(0):
            raise SystemExit
        return None, None

    with counter.queue(credential_provider=provider) as queue:
        queue.peek_dlq()
        killed(counter.redis, counter.ours())
        eventually(lambda: len(leaves) < 3)
        with counter.queue() as other:
            other.add("a", 1)
    leaves[:] = [True]
    with (
        counter.queue(credential_provider=provider) as queue,
        pytest.raises(StoreUnavailableError, match="SystemExit was raised"),
    ):
        queue.add("a", 2)
    assert counter.added() == [1]


def test_a_call_runs_in_its_callers_context(counter: Counter) -> None:
    who: ContextVar[str] = ContextVar("who")
    seen: list[str] = []

    def provider(host: str | None) -> tuple[None, None]:
        seen.append(who.get())
        return None, None

    def work(name: str) -> None:
        who.set(name)
        with counter.queue(credential_provider=provider) as queue:
            queue.peek_dlq()

    with ThreadPoolExecutor(8) as pool:
        names = [f"thread {n}" for n in range(8)]
        list(pool.map(work, names))
    assert sorted(seen) == sorted(names)


def test_queues_open_and_close_in_many_threads(counter: Counter) -> None:
    def work(number: int) -> None:
        for n in range(10):
            with counter.queue() as queue:
                queue.add("a", [number, n])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert sorted(counter.added()) == [[number, n] for number in range(8) for n in range(10)]
    eventually(lambda: not counter.ours())


def test_a_queue_is_closed_under_the_hands_of_others(counter: Counter) -> None:
    """It may be used again after a close, so none of them is refused for long."""
    stop = threading.Event()
    queue = counter.queue()
    added: list[Any] = []

    def work(number: int) -> None:
        n = 0
        while not stop.is_set():
            try:
                queue.add("a", [number, n])
            except sync.ShutdownError:
                continue
            added.append([number, n])
            n += 1

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(work, number) for number in range(4)]
        for _ in range(20):
            queue.close()
            time.sleep(0.01)
        stop.set()
        for it in works:
            it.result()
    queue.close()
    assert sorted(counter.added()) == sorted(added)
    eventually(lambda: not counter.ours())
