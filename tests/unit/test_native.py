"""What the native doors refuse, and in which of the kinds that the reference raises.

Nothing listens where these producers would connect: what is refused is refused before that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from chasquimq import (
    ArgumentError,
    ConfigError,
    NameTooLongError,
    PayloadTooLargeError,
    Worker,
)
from chasquimq.config import MAX_MS, U32, ProducerOptions, ScheduleOptions
from chasquimq.engine.draft import raw_draft, read_moment, read_retry, read_wait
from chasquimq.job import BackoffSpec, Draft, Due, RetryOverride
from chasquimq.native import Consumer, Producer, Promoter, Scheduler
from chasquimq.native.consumer import Keywords

NOWHERE = "redis://127.0.0.1:1"
NOW_MS = 1_800_000_000_000
OPTIONS = ProducerOptions()
Call = Callable[[Producer], Any]


class Wide(bytes):
    """Bytes that answer something else when they are asked for themselves."""

    def __bytes__(self) -> bytes:
        return b"\r\n" * 40


# -- drafts --------------------------------------------------------------------------------------


def test_a_payload_is_taken_as_it_is() -> None:
    for payload in (b"", b"\xc1", b"x" * 70_000):
        assert raw_draft(payload, OPTIONS) == Draft(b"", payload)
    sent = raw_draft(Wide(b"ab"), OPTIONS).payload
    assert (sent, type(sent)) == (b"ab", bytes)


def test_a_raw_draft_has_all_that_a_draft_has() -> None:
    retry = RetryOverride(3, BackoffSpec("fixed", 5))
    wait = read_wait(1_500, NOW_MS)
    assert raw_draft(b"x", OPTIONS, name="n", job_id="i", retry=retry, wait=wait) == Draft(
        b"n", b"x", b"i", retry, Due(1_500), 1_500
    )


@pytest.mark.parametrize("retry", [None, RetryOverride(1)])
@pytest.mark.parametrize("job_id", [None, "i" * 100])
def test_a_raw_draft_has_the_limit_of_a_draft(retry: Any, job_id: Any) -> None:
    room = 1_000 - 64 - len(job_id or "") - (64 if retry else 0)
    options = ProducerOptions(max_payload_bytes=1_000)
    assert raw_draft(b"x" * room, options, job_id=job_id, retry=retry).payload
    with pytest.raises(PayloadTooLargeError, match="1001 bytes, limit is 1000"):
        raw_draft(b"x" * (room + 1), options, job_id=job_id, retry=retry)


@pytest.mark.parametrize(
    ("retry", "override"),
    [
        (None, None),
        ({}, RetryOverride()),  # written as one that says nothing, as the reference does
        ({"max_attempts": None, "backoff": None}, RetryOverride()),
        ({"max_attempts": 0}, RetryOverride(0)),
        ({"max_attempts": U32}, RetryOverride(U32)),
        ({"max_attempts": True}, RetryOverride(1)),
        (
            {"backoff": {"kind": "fixed", "delay_ms": 5}},
            RetryOverride(None, BackoffSpec("fixed", 5)),
        ),
        (
            {"backoff": {"kind": "exponential", "delay_ms": 5, "multiplier": 3}},
            RetryOverride(None, BackoffSpec("exponential", 5, None, 3.0)),
        ),
        ({"backoff": 5}, RetryOverride(None, BackoffSpec("fixed", 5))),
        ({"backoff": BackoffSpec.fixed(5)}, RetryOverride(None, BackoffSpec("fixed", 5))),
    ],
)
def test_a_retry_is_a_dict(retry: Any, override: RetryOverride | None) -> None:
    assert repr(read_retry(retry)) == repr(override)  # 3 is not 3.0: they are different bytes


def test_a_moment_is_an_epoch_ms() -> None:
    assert read_moment(NOW_MS + 5, NOW_MS) == (Due(NOW_MS + 5, absolute=True), 5)
    assert read_moment(0, NOW_MS)[1] < 0
    assert raw_draft(b"", OPTIONS, wait=read_moment(NOW_MS, NOW_MS)).due is None
    assert raw_draft(b"", OPTIONS, wait=read_wait(0, NOW_MS)).due is None
    assert read_wait(True, NOW_MS) == (Due(1), 1)


# -- what is refused -----------------------------------------------------------------------------

REFUSED: list[tuple[str, Call, type[Exception], type[Exception], str]] = [
    # (what, call, our error, the reference's kind, what it says)
    ("str", lambda p: p.add("x"), ArgumentError, TypeError, "a payload is bytes, got str"),
    ("None", lambda p: p.add(None), ArgumentError, TypeError, "got NoneType"),
    ("bytearray", lambda p: p.add(bytearray(b"x")), ArgumentError, TypeError, "got bytearray"),
    ("memoryview", lambda p: p.add(memoryview(b"x")), ArgumentError, TypeError, "got memoryview"),
    ("dict", lambda p: p.add({"a": 1}), ArgumentError, TypeError, "got dict"),
    ("large", lambda p: p.add(b"x" * 2**20), PayloadTooLargeError, RuntimeError, "limit is"),
    (
        "opts None",
        lambda p: p.add_with_options(b"x", None),
        ArgumentError,
        TypeError,
        "opts is a dict, got NoneType",
    ),
    (
        "opts typo",
        lambda p: p.add_with_options(b"x", {"nmae": "n"}),
        ArgumentError,
        TypeError,
        "opts has no option 'nmae'; did you mean 'name'",
    ),
    (
        "id int",
        lambda p: p.add_with_options(b"x", {"id": 5}),
        ConfigError,
        ValueError,
        "a job id is a str, got int",
    ),
    (
        "id empty",
        lambda p: p.add_with_options(b"x", {"id": ""}),
        ConfigError,
        RuntimeError,
        "is blank",
    ),
    (
        "name int",
        lambda p: p.add_with_options(b"x", {"name": 5}),
        ConfigError,
        ValueError,
        "a job name is a str, got int",
    ),
    (
        "name long",
        lambda p: p.add_with_options(b"x", {"name": "n" * 257}),
        NameTooLongError,
        RuntimeError,
        "257 bytes, limit is 256",
    ),
    (
        "retry int",
        lambda p: p.add_with_options(b"x", {"retry": 5}),
        ArgumentError,
        ValueError,
        "retry is a dict, got int",
    ),
    (
        "retry typo",
        lambda p: p.add_with_options(b"x", {"retry": {"attempts": 5}}),
        ArgumentError,
        ValueError,
        "retry has no option 'attempts'; did you mean 'max_attempts'",
    ),
    (
        "attempts negative",
        lambda p: p.add_with_options(b"x", {"retry": {"max_attempts": -1}}),
        ConfigError,
        ValueError,
        "max_attempts must be a whole number",
    ),
    (
        "backoff kind",
        lambda p: p.add_with_options(b"x", {"retry": {"backoff": {"kind": "zig", "delay_ms": 5}}}),
        ConfigError,
        ValueError,
        "kind must be fixed or exponential, got 'zig'",
    ),
    (
        "backoff delay",
        lambda p: p.add_with_options(b"x", {"retry": {"backoff": {"kind": "fixed"}}}),
        ConfigError,
        ValueError,
        "delay_ms",
    ),
    ("in -1", lambda p: p.add_in(-1, b"x"), ConfigError, ValueError, "must be finite non-negative"),
    ("in 1.5", lambda p: p.add_in(1.5, b"x"), ArgumentError, TypeError, "a whole number"),
    ("in str", lambda p: p.add_in("5", b"x"), ArgumentError, TypeError, "a whole number"),
    ("in swapped", lambda p: p.add_in(b"x", 5), ArgumentError, TypeError, "a whole number"),
    (
        "in 31 days",
        lambda p: p.add_in(31 * 86_400_000, b"x"),
        ConfigError,
        RuntimeError,
        r"exceeds max_delay_secs \(2592000\)",
    ),
    ("at -1", lambda p: p.add_at(-1, b"x"), ConfigError, ValueError, "epoch ms from 0"),
    ("at 2**60", lambda p: p.add_at(2**60, b"x"), ConfigError, RuntimeError, f"to {MAX_MS}"),
    (
        "at datetime",
        lambda p: p.add_at(datetime.now(UTC), b"x"),
        ArgumentError,
        TypeError,
        "a whole number",
    ),
    ("at far", lambda p: p.add_at(2**50, b"x"), ConfigError, RuntimeError, "max_delay_secs"),
    ("bulk tuple", lambda p: p.add_bulk((b"x",)), ArgumentError, TypeError, "is a list, got tuple"),
    ("bulk bytes", lambda p: p.add_bulk(b"x"), ArgumentError, TypeError, "is a list, got bytes"),
    ("bulk str", lambda p: p.add_bulk([b"x", "y"]), ArgumentError, ValueError, "got str"),
    (
        "bulk one id",
        lambda p: p.add_bulk_with_options([b"x", b"y"], {"id": "i"}),
        ConfigError,
        RuntimeError,
        "one id cannot name 2 jobs",
    ),
    (
        "named list",
        lambda p: p.add_bulk_named([["n", b"x"]]),
        ArgumentError,
        ValueError,
        "tuple of str and bytes",
    ),
    (
        "named three",
        lambda p: p.add_bulk_named([("n", b"x", 1)]),
        ArgumentError,
        ValueError,
        "tuple of str and bytes",
    ),
    (
        "named None",
        lambda p: p.add_bulk_named([(None, b"x")]),
        ArgumentError,
        ValueError,
        r"items\[0\]",
    ),
    (
        "named tuple",
        lambda p: p.add_bulk_named((("n", b"x"),)),
        ArgumentError,
        TypeError,
        "is a list",
    ),
    (
        "in bulk str",
        lambda p: p.add_in_bulk(5, ["x"]),
        ArgumentError,
        ValueError,
        "a payload is bytes",
    ),
    (
        "in bulk blank id",
        lambda p: p.add_in_bulk_with_ids(5, [(" ", b"x")]),
        ConfigError,
        RuntimeError,
        "is blank",
    ),
    ("cancel int", lambda p: p.cancel_delayed(5), ArgumentError, TypeError, "a str, got int"),
    ("cancel str", lambda p: p.cancel_delayed_bulk("ab"), ArgumentError, TypeError, "got str"),
    ("cancel text", lambda p: p.cancel_delayed("\ud800"), ConfigError, ValueError, "no valid text"),
    ("result int", lambda p: p.get_result_bulk([5]), ArgumentError, TypeError, "a str, got int"),
]


@pytest.mark.parametrize(
    ("call", "kind", "expected", "message"),
    [row[1:] for row in REFUSED],
    ids=[row[0] for row in REFUSED],
)
async def test_what_makes_no_sense_is_refused(
    call: Call, kind: type[Exception], expected: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=rf"^CMQ-0\d\d: .*{message}") as caught:
        await call(Producer(NOWHERE, "q"))
    assert isinstance(caught.value, expected)


async def test_a_bulk_says_which_of_its_jobs_was_refused() -> None:
    with pytest.raises(ArgumentError) as caught:
        await Producer(NOWHERE, "q").add_bulk([b"x", b"y", "z"])  # type: ignore[list-item]
    assert caught.value.__notes__ == ["job 2 of the bulk; nothing was sent"]


async def test_what_is_empty_asks_nobody() -> None:
    producer = Producer(NOWHERE, "q")
    assert await producer.add_bulk([]) == []
    assert await producer.add_bulk_with_options([], {"id": "i"}) == []
    assert await producer.add_bulk_named([]) == []
    assert await producer.add_in_bulk(5, []) == []
    assert await producer.add_in_bulk_with_ids(5, []) == []
    assert await producer.cancel_delayed_bulk([]) == []
    assert await producer.get_result_bulk([]) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool_size": 0}, "pool_size must be at least 1"),
        ({"max_stream_len": 0}, "max_stream_len must be at least 1"),
        ({"max_delay_secs": -1}, "max_delay_secs must be at least 0"),
        ({"on_full": "drop"}, "on_full must be one of"),
        ({"poolsize": 3}, "did you mean 'pool_size'"),
        ({"redis_url": "http://h"}, "must start with redis://"),
        ({"queue_name": "{q}"}, "braces"),
    ],
)
def test_a_producer_refuses_options_that_make_no_sense(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer(**({"redis_url": NOWHERE, "queue_name": "q"} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"poll_interval_ms": 0}, "must be at least 1"),
        ({"promote_batch": 0}, "must be from 1 to 1000"),
        ({"lock_ttl_secs": 0}, "must be at least 1"),
        ({"events_max_stream_len": 0}, "must be at least 1"),
        ({"metrics": object()}, "none of the callbacks"),
        ({"holder": "me"}, "did you mean 'holder_id'"),
    ],
)
def test_a_promoter_refuses_options_that_make_no_sense(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Promoter(NOWHERE, "q", **options)


def test_a_consumer_takes_every_option_of_a_worker() -> None:
    of_worker = set(inspect.signature(Worker).parameters) - {"queue_name", "handler"}
    of_consumer = set(inspect.signature(Consumer).parameters) | set(Keywords.__annotations__)
    assert of_consumer - {"queue_name", "options"} == of_worker
    assert inspect.signature(Consumer).parameters["concurrency"].default == 1
    passed = Consumer(NOWHERE, "q", concurrency=3, max_attempts=4, group="g")
    assert passed._worker._options.concurrency == 3
    assert passed._worker._options.retry.max_attempts == 4
    leads = Consumer(NOWHERE, "q", scheduler_batch=7, scheduler_lock_ttl_secs=8)
    assert leads._worker._options.schedule == ScheduleOptions(batch=7, lock_ttl_s=8)
    assert Consumer(NOWHERE, "q")._worker._options.concurrency == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurency": 3}, "Consumer has no option 'concurency'; did you mean 'concurrency'"),
        ({"handler": print}, "Consumer has no option 'handler'"),
        ({"max_attempts": 0}, "max_attempts must be from 1"),
        ({"queue_name": ""}, "is empty"),
    ],
)
def test_a_consumer_refuses_options_that_make_no_sense(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Consumer(**({"redis_url": NOWHERE, "queue_name": "q"} | options))


async def test_a_consumer_wants_a_function() -> None:
    for handler in (None, "f", {}, {"n": 5}):
        with pytest.raises(ConfigError, match="handler"):
            await Consumer(NOWHERE, "q").run(handler)  # type: ignore[arg-type]


def test_a_producer_knows_its_keys_and_its_id() -> None:
    producer = Producer(NOWHERE, "a:b ñ", pool_size=8)
    assert producer.stream_key() == "{chasqui:a:b ñ}:stream"
    assert producer.delayed_key() == "{chasqui:a:b ñ}:delayed"
    assert producer.dlq_key() == "{chasqui:a:b ñ}:dlq"
    assert producer.producer_id() == producer.producer_id()
    assert producer.producer_id() != Producer(NOWHERE, "a:b ñ").producer_id()
    assert len(producer.producer_id()) == 36


def test_no_door_shows_its_password() -> None:
    url = "redis://u:hunter22@127.0.0.1:1"  # not a secret
    for door in (Producer(url, "q"), Promoter(url, "q"), Scheduler(url, "q"), Consumer(url, "q")):
        assert "hunter" not in repr(door)
        assert "127.0.0.1:1" in repr(door)
