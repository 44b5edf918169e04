"""What `add` accepts and what it refuses, before anything is sent."""

from __future__ import annotations

import enum
import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq import wire
from chasquimq.config import MAX_MS, U32, ProducerOptions
from chasquimq.engine.draft import draft, read_backoff
from chasquimq.errors import (
    ArgumentError,
    ChasquiError,
    ConfigError,
    EncodeError,
    NameTooLongError,
    PayloadTooLargeError,
)
from chasquimq.job import BackoffSpec, Draft, Due, Envelope, RetryOverride

NOW_MS = 1_800_000_000_000
NOW = datetime.fromtimestamp(NOW_MS / 1000, UTC)
OPTIONS = ProducerOptions()


def drafted(
    name: Any = "n", data: Any = None, options: ProducerOptions = OPTIONS, **given: Any
) -> Draft:
    return draft(name, data, NOW_MS, options, **given)


def test_a_plain_job_is_its_name_and_its_data() -> None:
    assert drafted("send", {"a": 1}) == Draft(b"send", b"\x81\xa1a\x01")


# -- when ----------------------------------------------------------------------------------------

LATER = [  # (delay, when Redis is to run it, ms from now)
    (1, Due(1), 1),
    (1_500, Due(1_500), 1_500),
    (1.9, Due(1), 1),
    (1e3, Due(1_000), 1_000),
    (timedelta(seconds=2), Due(2_000), 2_000),
    (timedelta(microseconds=1_999), Due(1), 1),
    (timedelta(days=30), Due(2_592_000_000), 2_592_000_000),
    (NOW + timedelta(seconds=5), Due(NOW_MS + 5_000, True), 5_000),
    ((NOW + timedelta(seconds=5)).replace(tzinfo=None), Due(NOW_MS + 5_000, True), 5_000),
    (
        (NOW + timedelta(seconds=5)).astimezone(timezone(timedelta(hours=5, minutes=45))),
        Due(NOW_MS + 5_000, True),
        5_000,
    ),
]
AT_ONCE = [
    0,
    0.0,
    0.9,
    timedelta(0),
    timedelta(microseconds=999),
    NOW,
    NOW - timedelta(days=1),
    datetime(1970, 1, 1, tzinfo=UTC),
]
NO_DELAY = [  # (delay, error, what it says)
    (-1, ConfigError, "must be finite non-negative, got -1 ms"),
    (-0.5, ConfigError, "must be finite non-negative"),
    (timedelta(microseconds=-1), ConfigError, "must be finite non-negative, got -1 ms"),
    (math.nan, ConfigError, "must be finite non-negative, got nan"),
    (math.inf, ConfigError, "must be finite non-negative, got inf"),
    (-math.inf, ConfigError, "must be finite non-negative"),
    (datetime(1969, 12, 31, tzinfo=UTC), ConfigError, "cannot run before 1970"),
    (True, ArgumentError, "a number of ms, a timedelta or a datetime, got bool"),
    (False, ArgumentError, "got bool"),
    ("5", ArgumentError, "got str"),
    (Decimal(5), ArgumentError, "got Decimal"),
    ([5], ArgumentError, "got list"),
    (NOW.date(), ArgumentError, "got date"),
    (1j, ArgumentError, "got complex"),
]


@pytest.mark.parametrize("parameter", ["delay_ms", "delay"])
@pytest.mark.parametrize(("delay", "due", "wait_ms"), LATER)
def test_a_delay_may_be_ms_a_timedelta_or_a_moment(
    delay: Any, due: Due, wait_ms: int, parameter: str
) -> None:
    ready = drafted(**{parameter: delay})
    assert (ready.due, ready.delay_ms) == (due, wait_ms)


@pytest.mark.parametrize("delay", AT_ONCE)
def test_what_is_due_already_runs_at_once(delay: Any) -> None:
    assert drafted(delay_ms=delay).due is None


@pytest.mark.parametrize("parameter", ["delay_ms", "delay"])
@pytest.mark.parametrize(("delay", "kind", "message"), NO_DELAY)
def test_a_delay_that_is_none_is_refused(
    delay: Any, kind: type[ChasquiError], message: str, parameter: str
) -> None:
    with pytest.raises(kind, match=rf"^CMQ-004: .*{message}"):
        drafted(**{parameter: delay})


def test_a_delay_is_given_once() -> None:
    with pytest.raises(ConfigError, match="CMQ-004: give delay_ms or delay, not both"):
        drafted(delay_ms=5, delay=timedelta(seconds=1))


@pytest.mark.parametrize(
    ("delay_ms", "limit_s", "accepted"),
    [
        (2_592_000_999, 2_592_000, True),  # whole seconds are compared, as in the reference
        (2_592_001_000, 2_592_000, False),
        (10_999, 10, True),
        (11_000, 10, False),
        (NOW + timedelta(seconds=11), 10, False),
        (NOW + timedelta(seconds=10), 10, True),
        (NOW - timedelta(days=9_999), 10, True),
        (10**12, 0, True),  # 0: no limit
        (MAX_MS - NOW_MS, 0, True),
        (MAX_MS - NOW_MS + 1, 0, False),
        (1e300, 0, False),
        (10**400, 0, False),
    ],
)
def test_a_delay_has_a_limit(delay_ms: Any, limit_s: int, accepted: bool) -> None:
    options = ProducerOptions(max_delay_secs=limit_s)
    if accepted:
        drafted(options=options, delay_ms=delay_ms)
    else:
        with pytest.raises(ConfigError, match=r"^CMQ-004: a delay of \d+ m?s (exceeds|lies)"):
            drafted(options=options, delay_ms=delay_ms)


# -- how often -----------------------------------------------------------------------------------


def test_a_job_carries_an_override_only_when_one_was_given() -> None:
    assert drafted().retry is None
    assert drafted(attempts=3).retry == RetryOverride(3)
    assert drafted(backoff=500).retry == RetryOverride(None, BackoffSpec("fixed", 500))


@pytest.mark.parametrize("attempts", [0, 1, 25, U32, True])
def test_attempts_are_a_u32(attempts: int) -> None:
    retry = drafted(attempts=attempts).retry
    assert retry.max_attempts == int(attempts)
    assert type(retry.max_attempts) is int


@pytest.mark.parametrize("attempts", [-1, U32 + 1, 1.5, 3.0, "3", [3]])
def test_attempts_beyond_a_u32_are_refused(attempts: Any) -> None:
    with pytest.raises(ConfigError, match=r"^CMQ-004: attempts must be a whole number from 0 to"):
        drafted(attempts=attempts)


SPECS = [  # (backoff, what the wire will carry)
    (0, BackoffSpec("fixed", 0)),
    (500, BackoffSpec("fixed", 500)),
    (timedelta(seconds=1), BackoffSpec("fixed", 1_000)),
    (MAX_MS, BackoffSpec("fixed", MAX_MS)),
    (BackoffSpec.fixed(500, jitter_ms=0), BackoffSpec("fixed", 500, None, None, 0)),
    (BackoffSpec.exponential(5), BackoffSpec("exponential", 5, None, 2.0, None)),
    (BackoffSpec("exponential", 5, 6, 7, 8), BackoffSpec("exponential", 5, 6, 7.0, 8)),
    ({"kind": "fixed", "delay_ms": 5}, BackoffSpec("fixed", 5)),
    ({"kind": "fixed", "delay_ms": 5, "jitter_ms": None}, BackoffSpec("fixed", 5)),
    (
        {
            "kind": "exponential",
            "delay_ms": 5,
            "max_delay_ms": 6,
            "multiplier": 3,
            "jitter_ms": 7,
        },
        BackoffSpec("exponential", 5, 6, 3.0, 7),
    ),
]
NO_SPECS = [  # (backoff, error, what it says)
    (True, ArgumentError, "a whole number of ms, a timedelta, a BackoffSpec or a dict, got True"),
    (5.0, ArgumentError, "got 5.0"),
    ("fixed", ArgumentError, "got 'fixed'"),
    ([5], ArgumentError, r"got \[5\]"),
    (timedelta(seconds=-1), ConfigError, "delay_ms must not be negative, got -1000"),
    (-1, ConfigError, "delay_ms must not be negative, got -1"),
    (MAX_MS + 1, ConfigError, "beyond what Redis can count"),
    (2**70, ConfigError, "beyond what Redis can count"),
    ({}, ConfigError, "kind must be fixed or exponential, got None"),
    ({"kind": "linear", "delay_ms": 5}, ConfigError, "got 'linear'"),
    ({"kind": "fixed"}, ConfigError, "missing required field `delay_ms`"),
    ({"kind": "fixed", "delay_ms": "5"}, ConfigError, "Expected `int`, got `str`"),
    ({"kind": "fixed", "delay_ms": 1.5}, ConfigError, "Expected `int`, got `float`"),
    ({"kind": "fixed", "delay_ms": True}, ConfigError, "Expected `int`, got `bool`"),
    ({"kind": "fixed", "delay_ms": -5}, ConfigError, "delay_ms must not be negative"),
    ({"kind": "fixed", "delay_ms": 5, "jitter_ms": -1}, ConfigError, "jitter_ms must not"),
    ({"kind": "fixed", "delay_ms": 5, "jitter_ms": 2**60}, ConfigError, "beyond what Redis"),
    ({"kind": "fixed", "delay_ms": 5, "max_ms": 6}, ArgumentError, "no option 'max_ms'"),
    (BackoffSpec("linear", 5), ConfigError, "got 'linear'"),
    (BackoffSpec("fixed", 1.5), ConfigError, "Expected `int`, got `float`"),
    (BackoffSpec("exponential", 5, None, "2"), ConfigError, "Expected `float"),
    (BackoffSpec("exponential", 5, 2**64), ConfigError, "beyond what Redis can count"),
]


@pytest.mark.parametrize(("backoff", "spec"), SPECS)
def test_a_backoff_may_be_ms_a_spec_or_a_dict(backoff: Any, spec: BackoffSpec) -> None:
    assert read_backoff(backoff) == spec
    assert drafted(backoff=backoff, attempts=2).retry == RetryOverride(2, spec)


@pytest.mark.parametrize(("backoff", "kind", "message"), NO_SPECS)
def test_a_backoff_that_is_none_is_refused(
    backoff: Any, kind: type[ChasquiError], message: str
) -> None:
    with pytest.raises(kind, match=rf"^CMQ-004: .*{message}") as refused:
        drafted(backoff=backoff)
    assert str(refused.value).count("CMQ-") == 1, "said once"


# -- who and what --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("send", b"send"),
        ("", b""),
        (None, b""),
        ("é", "é".encode()),
        ("n" * 256, b"n" * 256),
        ("a b:{c}", b"a b:{c}"),
    ],
)
def test_a_name_is_text_of_256_bytes(name: str | None, raw: bytes) -> None:
    assert drafted(name).name == raw


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("n" * 257, NameTooLongError, "257 bytes, limit is 256"),
        ("é" * 129, NameTooLongError, "258 bytes, limit is 256"),
        ("a\0", ConfigError, "holds control characters"),
        ("a\n", ConfigError, "holds control characters"),
        ("\ud800", ConfigError, "is no valid text"),
        (5, ConfigError, "a job name is a str, got int"),
        (0, ConfigError, "a job name is a str, got int"),
        (False, ConfigError, "a job name is a str, got bool"),
        (b"send", ConfigError, "a job name is a str, got bytes"),
        ([], ConfigError, "a job name is a str, got list"),
    ],
)
def test_a_name_that_is_none_is_refused(name: Any, kind: type[ChasquiError], message: str) -> None:
    with pytest.raises(kind, match=rf"^CMQ-004: .*{message}"):
        drafted(name)


@pytest.mark.parametrize(
    ("job_id", "raw"),
    [("a", b"a"), (" a ", b" a "), ("é", "é".encode()), ("a" * 1024, b"a" * 1024)],
)
def test_a_job_id_is_what_the_caller_says(job_id: str, raw: bytes) -> None:
    assert drafted(job_id=job_id).own_id == raw


@pytest.mark.parametrize(
    ("job_id", "message"),
    [
        ("", "is blank"),
        (" \t", "is blank"),
        ("a" * 1025, "1025 bytes, limit is 1024"),
        ("é" * 513, "1026 bytes, limit is 1024"),
        ("\ud800", "is no valid text"),
        (5, "a job id is a str, got int"),
        (b"a", "a job id is a str, got bytes"),
    ],
)
def test_a_job_id_that_is_none_is_refused(job_id: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^CMQ-004: .*{message}"):
        drafted(job_id=job_id)


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("data", "place"),
    [
        ({1, 2}, "data is a set"),
        ({"a": [NOW]}, r"data\['a'\]\[0\] is a datetime.datetime"),
        ([2**64], r"data\[0\] is an int beyond 64 bits"),
        (object(), "data is an object"),
        (Color.RED, "data is a .*Color"),
        ({"a": "\ud800"}, r"data\['a'\] is no valid text"),
    ],
)
def test_data_that_no_worker_could_read_is_refused(data: Any, place: str) -> None:
    with pytest.raises(EncodeError, match=rf"^CMQ-002: {place}"):
        drafted(data=data)


@pytest.mark.parametrize("data", [None, 0, 1.5, math.nan, "a", b"a", [1], (1,), {"a": {1: 2}}])
def test_data_that_a_worker_can_read_is_accepted(data: Any) -> None:
    read = wire.decode(drafted(data=data).payload)
    assert read == (list(data) if isinstance(data, tuple) else data) or data != data


# -- size ----------------------------------------------------------------------------------------


def test_a_job_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLargeError, match=r"^CMQ-023: .* limit is 200;") as caught:
        drafted(data=b"x" * 200, options=ProducerOptions(max_payload_bytes=200))
    assert caught.value.limit == 200 < caught.value.size


@given(
    size=st.integers(0, 400),
    own_id=st.none() | st.text(min_size=1, max_size=40).filter(str.strip),
    attempts=st.none() | st.integers(0, U32),
    backoff=st.none()
    | st.builds(
        BackoffSpec,
        st.sampled_from(["fixed", "exponential"]),
        st.integers(0, MAX_MS),
        st.none() | st.integers(0, MAX_MS),
        st.none() | st.floats(),
        st.none() | st.integers(0, MAX_MS),
    ),
)
def test_what_a_producer_lets_through_no_worker_finds_too_large(
    size: int, own_id: str | None, attempts: int | None, backoff: BackoffSpec | None
) -> None:
    options = ProducerOptions(max_payload_bytes=400)
    try:
        ready = drafted(
            data=b"x" * size, options=options, job_id=own_id, attempts=attempts, backoff=backoff
        )
    except (PayloadTooLargeError, ConfigError):
        return
    # On its last run: the attempt has grown to its widest form.
    envelope = Envelope(own_id or "0" * 26, ready.payload, NOW_MS, U32, ready.retry)
    assert len(wire.pack_envelope(envelope)) <= options.max_payload_bytes


@pytest.mark.parametrize("own_id", [None, "i" * 30, "i" * 1_024])
@pytest.mark.parametrize("wide", [False, True])
def test_the_largest_job_that_comes_in_is_not_too_large(own_id: str | None, wide: bool) -> None:
    """On its last run, with the widest override."""
    options = ProducerOptions(max_payload_bytes=70_000)
    spec = BackoffSpec("exponential", MAX_MS, MAX_MS, 2.5, MAX_MS)
    given = {"job_id": own_id} | ({"attempts": U32, "backoff": spec} if wide else {})
    ready = None
    for size in range(70_000, 68_000, -1):
        try:
            ready = drafted(data=b"x" * size, options=options, **given)
            break
        except PayloadTooLargeError:
            continue
    assert ready is not None
    envelope = Envelope(own_id or "0" * 26, ready.payload, NOW_MS, U32, ready.retry)
    assert 69_900 <= len(wire.pack_envelope(envelope)) <= 70_000


@pytest.mark.parametrize(
    "given_",
    [{"delay_ms": -1}, {"backoff": {}}, {"attempts": -1}, {"job_id": ""}, {"data": object()}],
)
def test_one_bad_option_refuses_the_whole_job(given_: dict[str, Any]) -> None:
    good = {"data": 1, "delay_ms": 5, "backoff": 5, "attempts": 5, "job_id": "a"}
    assert isinstance(drafted(**good), Draft)
    with pytest.raises(ChasquiError):
        drafted(**(good | given_))


@pytest.mark.parametrize("delay", ["1s", timedelta(seconds=1)])
def test_a_backoff_that_is_no_number_is_named(delay: Any) -> None:
    with pytest.raises(ArgumentError, match="CMQ-004: backoff delay_ms is a number of ms, got"):
        BackoffSpec.fixed(delay)
    with pytest.raises(ArgumentError, match="CMQ-004: backoff max_delay_ms is a number of ms, got"):
        BackoffSpec.exponential(5, max_ms=delay)
