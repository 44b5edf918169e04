"""The synchronous Queue is the async one: same methods, same answers, but every call blocks."""

from __future__ import annotations

import asyncio
import gc
import inspect
import re
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest

from chasquimq import (
    ArgumentError,
    ConfigError,
    EncodeError,
    Job,
    JobFailedError,
    QueueFullError,
    RepeatPattern,
    ResultTimeoutError,
    StoreUnavailableError,
    UnrecoverableError,
    sync,
)
from chasquimq import Queue as AsyncQueue
from tests.examples.page import ROOT
from tests.sync.counter import Counter, eventually

PUBLIC = {name: it for name, it in inspect.getmembers(AsyncQueue) if name[0] != "_"}
METHODS = [name for name, it in PUBLIC.items() if not isinstance(it, property)]


# -- the same ----------------------------------------------------------------------------------


def test_there_are_methods_and_all_are_coroutines() -> None:
    assert {"add", "add_bulk", "wait_for_result", "close"} <= set(METHODS)
    assert all(inspect.iscoroutinefunction(inspect.unwrap(PUBLIC[name])) for name in METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_of_the_async_queue_is_here(name: str) -> None:
    """Whoever adds one there adds a line here: `counts = blocking(AsyncQueue.counts)`."""
    ours, theirs = getattr(sync.Queue, name, None), getattr(AsyncQueue, name)
    assert ours is not None, f"write `{name} = blocking(AsyncQueue.{name})` in sync.py"
    assert inspect.unwrap(ours) is inspect.unwrap(theirs)
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert (ours.__name__, ours.__doc__) == (name, theirs.__doc__)
    assert not inspect.iscoroutinefunction(ours)


def test_nothing_else_is_here() -> None:
    assert {name for name in vars(sync.Queue) if name[0] != "_"} == set(PUBLIC)
    assert inspect.signature(sync.Queue) == inspect.signature(AsyncQueue)


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_is_on_its_page(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/reference/sync.md").read_text()


TYPED = """\
from chasquimq import ConfigError, Job
from chasquimq.sync import Queue

queue = Queue("mail", redis_url="redis://127.0.0.1", max_stream_len=3)
job: Job = queue.add("welcome", {"user": 42}, delay_ms=5)
jobs: list[Job] = queue.add_bulk([])
cancelled: bool = queue.cancel_delayed("a")
with queue as same:
    same.close()
Queue("mail", redis_uri="redis://127.0.0.1")  # wrong
Queue(42)  # wrong
queue.add("welcome", {}, dealy=5)  # wrong
queue.add_bulk(42)  # wrong
same.cancel_delayed()  # wrong
"""


def test_a_type_checker_knows_every_parameter(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", file]
    told = subprocess.run(mypy, capture_output=True, text=True, cwd=ROOT)
    errors = re.findall(r"typed\.py:(\d+): error", told.stdout)
    wrong = [number for number, line in enumerate(TYPED.splitlines(), 1) if "# wrong" in line]
    assert [int(number) for number in errors] == wrong, told.stdout + told.stderr


# -- the doors ---------------------------------------------------------------------------------


def test_jobs_come_in(counter: Counter) -> None:
    with counter.queue() as queue:
        job = queue.add("one", {"n": 1}, attempts=3)
        assert isinstance(job, Job)
        assert (job.name, job.data) == ("one", {"n": 1})
        queue.add_unique("two", 2, job_id="own")
        queue.add_unique("two", 2, job_id="own")
        jobs = queue.add_bulk([{"name": "three", "data": n} for n in range(3)])
        assert [job.data for job in jobs] == [0, 1, 2]
        assert queue.counts().waiting == 5
    assert counter.added() == [{"n": 1}, 2, 0, 1, 2]


def test_delayed_jobs_can_be_taken_back(counter: Counter) -> None:
    with counter.queue() as queue:
        queue.add("later", 1, delay_ms=60_000, job_id="a")
        assert counter.desk.delayed() == 1
        assert queue.cancel_delayed("a") is True
        assert queue.cancel_delayed("a") is False


async def test_jobs_can_be_repeated(counter: Counter) -> None:
    ran: list[str] = []

    def work() -> None:
        with counter.queue() as queue:
            spec = queue.add("tick", 1, repeat=RepeatPattern.every(20), limit=3)
            with pytest.raises(ConfigError, match="does not know its queue"):
                spec.wait_for_result(timeout=1)
            assert spec.id == "tick::every:20"
            eventually(lambda: len(ran) == 3)
            eventually(lambda: queue.get_repeatable_jobs() == [])
            key = queue.upsert_repeatable_job("tick", 1, repeat=RepeatPattern.every(60_000)).id
            assert len(queue.next_fires(key, 3)) == 3
            assert queue.pause_repeatable(key) is True
            assert queue.run_repeatable_now(key).id.startswith(f"{key}@")
            eventually(lambda: len(ran) == 4)
            assert queue.resume_repeatable(key) is True
            assert queue.remove_repeatable_by_key(key) is True

    async with counter.desk.working(lambda job: ran.append(job.id)):
        await asyncio.to_thread(work)


async def test_dead_jobs_are_shown_and_replayed(counter: Counter) -> None:
    def bury(job: Job) -> None:
        raise UnrecoverableError("no")

    def work() -> None:
        with counter.queue() as queue:
            queue.add("dies", 1)
            eventually(lambda: queue.peek_dlq())
            assert [row["name"] for row in queue.peek_dlq(limit=5)] == ["dies"]
            assert queue.replay_dlq(dry_run=True) == 1

    async with counter.desk.working(bury):
        await asyncio.to_thread(work)


async def test_results_are_waited_for(counter: Counter) -> None:
    def double(job: Job) -> Any:
        if job.name == "dies":
            raise UnrecoverableError("no")
        return job.data * 2

    def work() -> None:
        with counter.queue() as queue:
            job = queue.add("double", 21)
            assert job.wait_for_result(timeout=20) == 42
            assert queue.wait_for_result(job.id) == 42
            assert queue.get_job_result(job.id) == 42
            jobs = queue.add_bulk([{"name": "double", "data": n} for n in range(3)])
            assert [job.wait_for_result() for job in jobs] == [0, 2, 4]
            assert queue.add_unique("double", 4, job_id="own").wait_for_result() == 8
            assert queue.get_job_result_bulk([jobs[2].id, "unknown"]) == [4, None]
            with pytest.raises(JobFailedError):
                queue.add("dies", 1).wait_for_result()

    async with counter.desk.working(double, store_results=True):
        await asyncio.to_thread(work)


async def test_jobs_of_a_bulk_that_was_not_accepted_whole_can_be_waited_for(
    own_counter: Counter,
) -> None:
    """Redis ran out of memory in the middle: the error has the jobs that are in."""
    with own_counter.queue() as queue:
        queue.add("first", 1)
        used = own_counter.redis.info("memory")["used_memory"]
        own_counter.redis.config_set("maxmemory", used + 2_000_000)
        with pytest.raises(QueueFullError) as refused:
            queue.add_bulk([{"name": "a", "data": "x" * 500_000} for _ in range(20)])
        own_counter.redis.config_set("maxmemory", 0)
        accepted = [job for job in refused.value.outcomes if isinstance(job, Job)]
        assert accepted
        with pytest.raises(ResultTimeoutError):
            accepted[0].wait_for_result(timeout=0.05)


def test_what_is_wrong_is_told_where_it_was_called(counter: Counter) -> None:
    with pytest.raises(ArgumentError, match="did you mean 'redis_url'"):
        counter.queue(redis_ulr="redis://127.0.0.1")
    with counter.queue() as queue:
        with pytest.raises(ArgumentError, match="did you mean 'delay_ms'"):
            queue.add("a", 1, delay_msec=5)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            queue.add("a")  # type: ignore[call-arg]
        with pytest.raises(EncodeError):
            queue.add("a", object())
        with pytest.raises(ConfigError) as error:
            queue.add_bulk([{"name": "a", "data": 1}, {"name": "b", "data": 1, "delay_ms": -1}])
        assert error.value.__notes__ == ["job 1 of the bulk; nothing was sent"]
    with pytest.raises(StoreUnavailableError):
        counter.queue(redis_url="redis://127.0.0.1:1").add("a", 1)
    with pytest.raises(StoreUnavailableError, match="no-such-host"):
        counter.queue(redis_url="redis://no-such-host.invalid").add("a", 1)
    assert counter.added() == []


def test_a_full_queue_refuses(counter: Counter) -> None:
    with counter.queue(max_stream_len=1) as queue:
        queue.add("a", 1)
        with pytest.raises(QueueFullError):
            queue.add("a", 2)


# -- its life ----------------------------------------------------------------------------------


def test_it_shows_no_password() -> None:
    queue = sync.Queue("mail", redis_url="redis://me:password@127.0.0.1")
    assert repr(queue) == "sync.Queue('mail', redis_url='redis://me:***@127.0.0.1:6379')"
    assert queue.name == "mail"


def test_it_connects_on_first_use_and_disconnects_when_closed(counter: Counter) -> None:
    with counter.queue() as queue:
        assert not counter.ours()
        queue.add("a", 1)
        assert counter.ours()
        assert not queue.is_closed
    assert queue.is_closed
    eventually(lambda: not counter.ours())
    queue.close()  # once more does no harm


def test_it_may_be_used_again_after_a_close(counter: Counter) -> None:
    queue = counter.queue()
    for n in range(3):
        queue.add("a", n)
        queue.close()
    assert counter.added() == [0, 1, 2]
    eventually(lambda: not counter.ours())


def test_a_queue_that_nobody_holds_any_more_is_closed(counter: Counter) -> None:
    for n in range(10):
        counter.queue().add("a", n)
    gc.collect()
    assert counter.added() == [*range(10)]
    eventually(lambda: not counter.ours())


def test_a_job_holds_on_to_its_queue(counter: Counter) -> None:
    job = counter.queue().add("a", 1)
    gc.collect()
    before = counter.ours()
    with pytest.raises(ResultTimeoutError):
        job.wait_for_result(timeout=0.05)
    assert before <= counter.ours()
    del job
    eventually(lambda: not counter.ours())


@pytest.mark.parametrize("end", ["closed", "dropped"])
def test_nothing_is_left_of_a_queue(end: str, counter: Counter) -> None:
    queue = counter.queue()
    queue.add("a", 1)
    inside = weakref.ref(queue._here())
    if end == "closed":
        queue.close()
    del queue
    eventually(lambda: gc.collect() >= 0 and inside() is None)


def test_an_error_holds_on_to_nothing(counter: Counter) -> None:
    """Or connections would live until the garbage collector comes by."""
    gc.collect()
    gc.disable()
    try:
        queue = counter.queue()
        queue.peek_dlq()
        with pytest.raises(ResultTimeoutError) as error:
            queue.wait_for_result("a", timeout=0.05)
        del error, queue
        eventually(lambda: not counter.ours())
    finally:
        gc.enable()
