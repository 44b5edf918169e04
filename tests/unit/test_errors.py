"""Errors show their code, sit where the tree draws them, and carry what callers need."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from chasquimq import errors
from chasquimq.errors import (
    AccessError,
    ArgumentError,
    ChasquiError,
    ConfigError,
    DataLossError,
    EncodeError,
    InputChangedError,
    JobFailedError,
    MalformedError,
    ModelError,
    NameTooLongError,
    NoHandlerError,
    NotSupportedError,
    PayloadTooLargeError,
    QueueFullError,
    ResultTimeoutError,
    RetryError,
    ShutdownError,
    StoreError,
    StoreUnavailableError,
    TimeLimitError,
    UnconfirmedError,
    UnrecoverableError,
    WireError,
)

TREE = [  # (error, its code, what else it is)
    (ConfigError("x"), "CMQ-004", (ChasquiError, ValueError)),
    (ArgumentError("x"), "CMQ-004", (ConfigError, TypeError, ValueError)),
    (NameTooLongError("n" * 300, 256), "CMQ-004", (ConfigError, ValueError)),
    (WireError("x"), "CMQ-003", (ChasquiError,)),
    (MalformedError("x"), "CMQ-302", (WireError,)),
    (EncodeError("x"), "CMQ-002", (WireError, TypeError)),
    (PayloadTooLargeError(11, 10), "CMQ-023", (EncodeError,)),
    (StoreError("x"), "CMQ-001", (ChasquiError,)),
    (AccessError("x"), "CMQ-001", (StoreError,)),
    (StoreUnavailableError("x"), "CMQ-001", (StoreError,)),
    (QueueFullError("x"), "CMQ-030", (StoreError,)),
    (UnconfirmedError("x"), "CMQ-031", (StoreError,)),
    (ShutdownError("x"), "CMQ-005", (ChasquiError,)),
    (ResultTimeoutError("j", "q", 1.0), "CMQ-102", (ChasquiError, TimeoutError)),
    (JobFailedError("j", "unrecoverable", 1), "CMQ-103", (ChasquiError,)),
    (NotSupportedError("x"), "CMQ-200", (ChasquiError,)),
    (DataLossError("q", 7, "1-0"), "CMQ-300", (ChasquiError,)),
    (InputChangedError(0, 3), "CMQ-301", (ChasquiError,)),
    (RetryError("x"), "CMQ-010", (ChasquiError,)),
    (UnrecoverableError("x"), "CMQ-011", (ChasquiError,)),
    (TimeLimitError("x"), "CMQ-012", (ChasquiError, TimeoutError)),
    (NoHandlerError("x"), "CMQ-013", (UnrecoverableError,)),
    (ModelError("j", "Invoice", []), "CMQ-014", (UnrecoverableError,)),
]
PUBLIC = {
    kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, ChasquiError) and not name.startswith("_")
}
BY_HANDLERS = (RetryError, UnrecoverableError)
OURS = [row for row in TREE if type(row[0]) not in BY_HANDLERS]


@pytest.mark.parametrize(("error", "code", "kinds"), TREE, ids=lambda value: type(value).__name__)
def test_an_error_is_what_the_tree_says(
    error: ChasquiError, code: str, kinds: tuple[type, ...]
) -> None:
    assert error.code == code
    # The reference raises RuntimeError: programs written for it must catch ours.
    assert all(isinstance(error, kind) for kind in (*kinds, RuntimeError))


def test_the_table_above_has_every_error() -> None:
    assert {type(error) for error, _, _ in TREE} | {ChasquiError} == PUBLIC


def test_the_drawing_has_every_error_with_its_code() -> None:
    drawn = dict(re.findall(r"── (\w+) +(\d{3})", errors.__doc__ or ""))
    assert drawn == {type(error).__name__: code.removeprefix("CMQ-") for error, code, _ in TREE}


@pytest.mark.parametrize(("error", "code", "kinds"), OURS, ids=lambda value: type(value).__name__)
def test_a_message_starts_with_its_code(
    error: ChasquiError, code: str, kinds: tuple[type, ...]
) -> None:
    assert str(error).startswith(f"{code}: ")


@pytest.mark.parametrize("kind", BY_HANDLERS)
def test_what_a_handler_raises_keeps_its_words(kind: type[ChasquiError]) -> None:
    assert str(kind("card declined")) == "card declined"
    assert str(kind()) == ""


def test_a_name_that_is_too_long_is_measured_in_bytes_and_shown_in_part() -> None:
    error = NameTooLongError("é" * 200, 256)
    assert (error.name, error.limit) == ("é" * 200, 256)
    assert "400 bytes, limit is 256" in str(error)
    assert "é" * 41 not in str(error)


def test_a_payload_that_is_too_large_says_what_to_do() -> None:
    error = PayloadTooLargeError(11, 10)
    assert (error.size, error.limit) == (11, 10)
    assert "11 bytes, limit is 10" in str(error) and "max_payload_bytes" in str(error)


@pytest.mark.parametrize("kind", [QueueFullError, UnconfirmedError])
def test_a_bulk_that_failed_has_an_outcome_per_job(
    kind: type[QueueFullError | UnconfirmedError],
) -> None:
    assert kind("x").outcomes == []
    assert kind("x", ("a", "b")).outcomes == ["a", "b"]


def test_what_is_unconfirmed_says_what_is_known() -> None:
    error = UnconfirmedError("x", job_id="a", accepted=True)
    assert (error.job_id, error.accepted, error.outcomes) == ("a", True, [])
    assert (UnconfirmedError("x").job_id, UnconfirmedError("x").accepted) == (None, None)


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [
        (None, None),
        (0, 0),
        (1_500, 1_500),
        (1.9, 1),
        (timedelta(seconds=2), 2_000),
        (timedelta(microseconds=1_999), 1),
    ],
)
def test_a_retry_asks_for_its_delay_in_ms(
    delay: float | timedelta | None, delay_ms: int | None
) -> None:
    assert RetryError("later", delay=delay).delay_ms == delay_ms


@pytest.mark.parametrize(
    "delay", [-1, -0.5, timedelta(microseconds=-1), float("nan"), float("inf")]
)
def test_a_retry_cannot_ask_for_a_delay_that_is_none(delay: float | timedelta) -> None:
    words = r"^CMQ-004: RetryError\(delay=...\) must be finite non-negative, got"
    with pytest.raises(ConfigError, match=words):
        RetryError("later", delay=delay)
