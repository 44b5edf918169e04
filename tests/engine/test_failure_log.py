"""Failed runs in the log: what a line says, how many there are, and how they are turned off."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chasquimq import BackoffSpec, Consumer, Job, RetryError, UnrecoverableError
from chasquimq.engine import failure_log, outcome
from chasquimq.engine.failure_log import LINES, Limiter
from tests.engine.desk import Desk, eventually

FAST = BackoffSpec.fixed(1, jitter_ms=0)
SLOW = BackoffSpec.fixed(3_600_000, jitter_ms=0)
MORE = re.compile(r"and (\d+) more failures? in the last second")


class Lines(logging.Handler):
    """What `chasquimq.worker` logs, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.times: list[float] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.times.append(time.monotonic())

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def failures(self) -> list[str]:
        return [text for text in self.texts if not MORE.search(text)]

    def counted(self) -> int:
        return sum(int(found[1]) for text in self.texts if (found := MORE.search(text)))

    def most_in_a_second(self) -> int:
        times = self.times
        return max((sum(at <= one < at + 1.0 for one in times) for at in times), default=0)


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """The log of workers, with limits that no other test has used up."""
    monkeypatch.setattr(failure_log, "_limiter", Limiter(most=LINES))
    monkeypatch.setattr(outcome, "_full", Limiter(60.0))
    log, handler = logging.getLogger("chasquimq.worker"), Lines()
    log.addHandler(handler)
    try:
        yield handler
    finally:
        log.removeHandler(handler)


async def nothing(job: Job) -> None:
    pass


# -- what a line says --------------------------------------------------------------------------


async def test_a_failed_run_is_a_warning_that_says_when_it_runs_again(
    desk: Desk, lines: Lines
) -> None:
    async def send(job: Job) -> None:
        raise ConnectionError("the mail server hung up")

    backoff = BackoffSpec.fixed(3_600_000, jitter_ms=0)
    async with desk.queue() as queue, desk.working(send, backoff=backoff):
        job = await queue.add("send", None)
        await eventually(lambda: lines.records)
    assert lines.texts == [
        f"job 'send' {job.id} of queue '{desk.name}' failed (attempt 1 of 25): "
        "ConnectionError: the mail server hung up; retrying in 3,600 s"
    ]
    assert lines.records[0].levelname == "WARNING"
    assert lines.records[0].exc_info is None


async def test_a_burial_is_an_error_with_the_traceback_of_the_handler(
    desk: Desk, lines: Lines
) -> None:
    async def send(job: Job) -> None:
        raise KeyError("user")

    async with desk.queue() as queue, desk.working(send, max_attempts=2, backoff=FAST):
        job = await queue.add("send", None)
        await eventually(desk.dead)
    first, last = lines.records
    assert "(attempt 1 of 2): KeyError: 'user'; retrying in 0.001 s" in first.getMessage()
    assert last.levelname == "ERROR"
    assert last.getMessage() == (
        f"job 'send' {job.id} of queue '{desk.name}' failed (attempt 2 of 2): KeyError: 'user'; "
        "moved to the DLQ (retries_exhausted)"
    )
    trace = logging.Formatter().format(last)
    assert "in send" in trace and 'raise KeyError("user")' in trace
    assert "chasquimq/engine" not in trace, "it begins where the handler's code does"


async def test_a_log_of_errors_alone_has_the_burials(desk: Desk, lines: Lines) -> None:
    async def handler(job: Job) -> None:
        raise ValueError("no")

    log = logging.getLogger("chasquimq.worker")
    log.setLevel(logging.ERROR)
    try:
        async with desk.queue() as queue, desk.working(handler, max_attempts=2, backoff=FAST):
            await queue.add("x", None)
            await eventually(desk.dead)
    finally:
        log.setLevel(logging.NOTSET)
    assert [record.levelname for record in lines.records] == ["ERROR"]


async def test_jobs_that_never_run_are_a_warning_each(desk: Desk, lines: Lines) -> None:
    async with desk.queue() as queue:
        spent = await queue.add("spent", None, attempts=0)
        desk.put_raw(b"\xc1", b"unread")
        desk.redis.xadd(desk.keys.stream, {b"x": b"strange"})
        desk.put("large", "x" * 2_000, "large")
        async with desk.working(nothing, max_payload_bytes=1_000):
            await eventually(lambda: len(desk.dead()) == 4)
    assert {record.levelname for record in lines.records} == {"WARNING"}
    said = "\n".join(lines.texts)
    assert f"job 'spent' {spent.id} of queue '{desk.name}' was not run" in said
    for reason in ("retries_exhausted", "decode_failed", "malformed", "oversize_payload"):
        assert f"moved to the DLQ ({reason}" in said


async def test_a_time_limit_and_a_missing_handler_are_failures_too(
    desk: Desk, lines: Lines
) -> None:
    async def slow(job: Job) -> None:
        await asyncio.sleep(60)

    options: dict[str, Any] = {"time_limit_ms": 50, "backoff": SLOW}
    async with desk.queue() as queue, desk.working({"slow": slow}, **options):
        await queue.add("slow", None)
        await queue.add("unknown", None)
        await eventually(lambda: len(lines.records) == 2)
    said = "\n".join(lines.texts)
    assert "'slow'" in said and "TimeLimitError: " in said
    assert "'unknown'" in said and "NoHandlerError: " in said


async def test_words_of_strangers_are_escaped_and_bounded_and_hide_passwords(
    desk: Desk, lines: Lines
) -> None:
    forged = "\n2026-11-16T09:00:00.123Z ERROR forged \x1b[31m"
    secret = "redis://me:hunter22@host:6379/0"  # not a secret

    async def handler(job: Job) -> None:
        group = ExceptionGroup(forged, [ValueError(forged)])
        group.add_note(forged)
        raise UnrecoverableError(f"{forged} {secret} " + "x" * 100_000) from group

    desk.put("id", None, f"name{forged}")  # our own producers refuse such a name
    async with desk.working(handler):
        await eventually(desk.dead)
    [record] = lines.records
    assert record.getMessage().isprintable() and len(record.getMessage()) < 2_000
    whole = logging.Formatter().format(record)
    assert "hunter22" not in whole and "\x1b" not in whole and len(whole) < 20_000
    assert "ExceptionGroup: " in whole and "ValueError: " in whole
    assert not any(line.lstrip(" |").startswith("2026-") for line in whole.splitlines())


async def test_errors_that_cannot_be_shown_change_nothing(desk: Desk, lines: Lines) -> None:
    class Sulky(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    class Noted(Exception):
        __notes__ = 5

    async def handler(job: Job) -> None:
        if job.name == "deep":
            error = ValueError("the first")
            for _ in range(3_000):
                later = ValueError("and more")
                later.__cause__, error = error, later
            raise error
        raise Sulky if job.name == "sulky" else Noted

    names = ("sulky", "noted", "deep")
    async with desk.queue() as queue, desk.working(handler, max_attempts=1):
        for name in names:
            await queue.add(name, None)
        await eventually(lambda: len(desk.dead()) == 3)
    assert len(lines.records) == 3
    assert all("in handler" in str(record.exc_text) for record in lines.records)
    assert all(len(str(record.exc_text)) <= failure_log.TRACE for record in lines.records)


# -- how many there are ------------------------------------------------------------------------


async def test_ten_thousand_failures_of_one_kind_are_few_lines_and_the_counts_add_up(
    desk: Desk, lines: Lines
) -> None:
    async def send(job: Job) -> None:
        raise ConnectionError("down")

    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "send", "data": None}] * 10_000)
        async with desk.working(send, backoff=SLOW):
            await eventually(lambda: desk.delayed() == 10_000)
    assert lines.most_in_a_second() <= 4, "a failure and a count a second, and the last count"
    assert len(lines.failures()) + lines.counted() == 10_000
    assert any("of ConnectionError in 'send'" in text for text in lines.texts)


async def test_many_kinds_of_failures_share_twenty_lines_a_second(desk: Desk, lines: Lines) -> None:
    async def handler(job: Job) -> None:
        raise type(f"Error{job.data % 50}", (Exception,), {})(job.id)

    async with desk.queue() as queue:
        jobs = [{"name": f"n{number % 100}", "data": number} for number in range(10_000)]
        await queue.add_bulk(jobs)
        async with desk.working(handler, backoff=SLOW):
            await eventually(lambda: desk.delayed() == 10_000)
    assert lines.most_in_a_second() <= 20
    assert len(lines.failures()) >= LINES
    assert len(lines.failures()) + lines.counted() == 10_000


async def test_a_storm_of_burials_keeps_to_the_limits(desk: Desk, lines: Lines) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("no")

    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "x", "data": None}] * 2_000)
        async with desk.working(handler):
            await eventually(lambda: len(desk.dead()) == 2_000)
    assert lines.most_in_a_second() <= 4
    assert len(lines.failures()) + lines.counted() == 2_000


# -- turned off --------------------------------------------------------------------------------


async def test_log_failures_false_says_nothing(desk: Desk, lines: Lines) -> None:
    async def handler(job: Job) -> None:
        raise RetryError("again", delay=1)

    options: dict[str, Any] = {"log_failures": False, "max_attempts": 2}
    async with desk.queue() as queue, desk.working(handler, **options):
        await queue.add("x", None)
        await eventually(desk.dead)
    assert lines.texts == []


async def test_a_native_consumer_logs_and_can_be_told_not_to(desk: Desk, lines: Lines) -> None:
    async def handler(job: Any) -> None:
        raise ValueError("no")

    for said in (False, True):
        desk.put("job", None, "raw")
        consumer = Consumer(
            desk.server.url,
            desk.name,
            log_failures=said,
            max_attempts=1,
            dialect=desk.server.forced_dialect,
        )
        running = asyncio.create_task(consumer.run(handler))
        await eventually(lambda: len(desk.dead()) == 1 + said)  # noqa: B023
        consumer.shutdown()
        await running
        assert len(lines.records) == said


async def test_log_runs_tells_of_every_run(desk: Desk, lines: Lines) -> None:
    async def handler(job: Job) -> None:
        if job.data == "bad" and job.attempt == 0:
            raise ValueError("no")

    logging.getLogger("chasquimq.worker").setLevel(logging.INFO)
    try:
        async with desk.queue() as queue:
            await queue.add_bulk([{"name": "good", "data": None}] * 50)
            await queue.add_bulk([{"name": "bad", "data": "bad"}] * 50)
            async with desk.working(handler, log_runs=True, backoff=FAST):
                await desk.settled()
    finally:
        logging.getLogger("chasquimq.worker").setLevel(logging.NOTSET)
    done = [text for text in lines.texts if re.search(r" done in [\d.]+ ms$", text)]
    failed = [record for record in lines.records if "failed (attempt 1" in record.getMessage()]
    assert (len(done), len(failed), len(lines.texts)) == (100, 50, 150)
    assert all(record.exc_text for record in failed), "with their tracebacks"


# -- the DLQ that is too long ------------------------------------------------------------------


async def test_a_dlq_over_its_limit_is_said_once_a_minute_with_its_queue_and_a_remedy(
    desk: Desk, lines: Lines
) -> None:
    async def handler(job: Job) -> None:
        raise UnrecoverableError("no")

    async with desk.queue() as queue:
        await queue.add_bulk([{"name": "x", "data": None}] * 500)
        async with desk.working(handler, dlq_max_stream_len=50):
            await eventually(lambda: len(desk.dead()) == 500)
    told = [text for text in lines.texts if "dlq_max_stream_len" in text]
    assert len(told) == 1
    assert told[0].startswith(f"the DLQ of queue '{desk.name}' holds 51 jobs")
    assert "dlq_max_stream_len=50" in told[0]
    assert f"chasqui dlq peek {desk.name}" in told[0]


# -- leases ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lease_ms", "warns"), [(4_999, True), (5_000, False), (None, False)])
async def test_a_lease_below_five_seconds_is_warned_of_when_the_worker_starts(
    lease_ms: int | None, warns: bool, desk: Desk, lines: Lines
) -> None:
    worker = desk.worker(nothing, claim_min_idle_ms=lease_ms, burst=True)
    assert lines.texts == []
    await worker.run()
    await worker.run()
    told = [text for text in lines.texts if "claim_min_idle_ms" in text]
    assert len(told) == warns
    if warns:
        assert desk.name in told[0] and "4999" in told[0] and "5000" in told[0]


# -- the limiter, by itself --------------------------------------------------------------------


def test_a_key_is_admitted_once_a_second_and_all_of_them_so_many_times() -> None:
    limiter = Limiter(most=3)
    assert [limiter.admits(key, 10.0) for key in "aabcd"] == [True, False, True, True, False]
    assert not limiter.admits("a", 10.999)
    assert limiter.admits("a", 11.0) and not limiter.admits("a", 11.5)
    assert limiter.admits("d", 11.5)


def test_a_flood_of_keys_is_not_remembered() -> None:
    limiter = Limiter(most=3)
    for number in range(100_000):
        limiter.admits(number, number / 10)
    assert len(limiter._last) <= failure_log.REMEMBERED
