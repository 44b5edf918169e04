"""Worker.adjust: what a command line may change of a Worker before it runs."""

from __future__ import annotations

import pytest

from chasquimq import ConfigError, Job, Queue, Worker
from chasquimq.observe.metrics import JobOutcome, MetricsSink
from tests.servers import DialectServer


class Count(MetricsSink):
    def __init__(self) -> None:
        self.jobs = 0

    def job_outcome(self, outcome: JobOutcome) -> None:
        self.jobs += 1


async def handle(job: Job) -> None: ...


async def test_what_was_adjusted_is_what_runs(
    dialect_server: DialectServer, queue_name: str
) -> None:
    mine, theirs = Count(), Count()
    worker = Worker(queue_name, handle, metrics=mine)
    worker.adjust(
        redis_url=dialect_server.url,
        dialect=dialect_server.forced_dialect,
        concurrency=3,
        burst=True,
        max_jobs=2,
        drain_ms=7,
        consumer_id="desk",
        metrics=[theirs],
    )
    options = worker.options
    assert (options.concurrency, options.drain_ms, worker.consumer_id) == (3, 7, "desk")
    assert str(worker.address) == dialect_server.url
    assert worker.dialect is None
    async with Queue(
        queue_name, redis_url=dialect_server.url, dialect=dialect_server.forced_dialect
    ) as queue:
        for _ in range(5):
            await queue.add("job", None)
        await worker.run()
        counts = await queue.counts()
    assert counts.waiting == 3
    assert (mine.jobs, theirs.jobs) == (2, 2), "sinks are added, none is replaced"
    assert worker.dialect == ("native" if dialect_server.name == "redis-native" else "portable")
    with pytest.raises(ConfigError, match="has begun to run: adjust it before"):
        worker.adjust(concurrency=1)


def test_what_is_none_stays() -> None:
    worker = Worker("mail", handle, concurrency=5, burst=True, max_jobs=4, drain_ms=3)
    before = worker.options
    worker.adjust()
    assert (worker.options, worker.consumer_id) == (before, None)
    worker.adjust(burst=False, concurrency=0)
    assert (worker.options.until.empty, worker.options.concurrency) == (False, 1)
    assert worker.options.until.max_jobs == 4


def test_a_url_of_its_own_is_kept_and_tls_with_it() -> None:
    own = Worker("mail", handle, redis_url="redis://elsewhere:7000/2")
    own.adjust(redis_url="redis://127.0.0.1:9")
    assert str(own.address) == "redis://elsewhere:7000/2"
    usual = Worker("mail", handle, tls=True)
    usual.adjust(redis_url="redis://:pass@db:9")  # not a secret
    assert str(usual.address) == "rediss://:***@db:9"


async def test_an_on_error_of_its_own_is_kept(
    dialect_server: DialectServer, queue_name: str
) -> None:
    heard: list[str] = []

    def fails(job: Job) -> None:
        raise ValueError

    options = {"redis_url": dialect_server.url, "dialect": dialect_server.forced_dialect}
    for own in (None, lambda *_: heard.append("own")):
        worker = Worker(queue_name, fails, max_attempts=1, burst=True, on_error=own, **options)
        worker.adjust(on_error=lambda *_: heard.append("given"))
        async with Queue(queue_name, **options) as queue:
            await queue.add("job", None)
        await worker.run()
    assert heard == ["given", "own"]


def test_nonsense_is_refused_and_changes_nothing() -> None:
    worker = Worker("mail", handle)
    before = worker.options
    for nonsense in (
        {"concurrency": -1},
        {"max_jobs": 0},
        {"drain_ms": -1},
        {"metrics": Count},
        {"on_error": "print"},
    ):
        with pytest.raises(ConfigError):
            worker.adjust(burst=True, **nonsense)  # type: ignore[arg-type]
        assert worker.options == before
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        worker.adjust(concurency=1)  # type: ignore[call-arg]
