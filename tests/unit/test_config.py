"""Options check themselves, and unknown ones are answered with the nearest known."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq.config import (
    MAX_MS,
    U32,
    ConnectOptions,
    DeadOptions,
    DurabilityOptions,
    EventOptions,
    FollowOptions,
    JanitorOptions,
    Options,
    ProducerOptions,
    PromoteOptions,
    ReadOptions,
    ResultOptions,
    RetryOptions,
    ScheduleOptions,
    SettleOptions,
    StreamOptions,
    UntilOptions,
    WorkerOptions,
    given,
    refuse_unknown,
    suggesting,
)
from chasquimq.errors import ArgumentError, ConfigError

BOUNDS: list[tuple[type[Options], str, int, int | None]] = [  # (struct, option, least, most)
    (ConnectOptions, "timeout_ms", 1, None),
    (ConnectOptions, "reply_ms", 1, None),
    (ConnectOptions, "retry_ms", 1, None),
    (ConnectOptions, "max_retry_ms", 1, None),
    (ConnectOptions, "max_retries", 1, None),
    (ConnectOptions, "buffer_bytes", 1, None),
    (StreamOptions, "idmp_max_size", 1, 10_000),
    (StreamOptions, "idmp_duration_s", 1, 86_400),
    (ProducerOptions, "max_stream_len", 1, None),
    (ProducerOptions, "max_delay_secs", 0, None),
    (ProducerOptions, "max_payload_bytes", 1, None),
    (ProducerOptions, "chunk", 1, None),
    (ProducerOptions, "add_timeout_ms", 1, MAX_MS),
    (DurabilityOptions, "replicas", 1, 1_000),
    (DurabilityOptions, "durability_timeout_ms", 1, 3_600_000),
    (ReadOptions, "batch", 1, None),
    (ReadOptions, "block_ms", 1, None),
    (ReadOptions, "claim_idle_ms", 1, None),
    (ReadOptions, "claim_every_ms", 1, None),
    (ReadOptions, "max_payload_bytes", 1, None),
    (SettleOptions, "batch", 1, None),
    (SettleOptions, "idle_ms", 0, None),
    (RetryOptions, "max_attempts", 1, U32),
    (RetryOptions, "delay_ms", 0, None),
    (RetryOptions, "max_delay_ms", 0, None),
    (RetryOptions, "jitter_ms", 0, None),
    (DeadOptions, "max_len", 1, None),
    (EventOptions, "max_len", 1, None),
    (EventOptions, "max_waiting", 1, None),
    (FollowOptions, "block_ms", 1, None),
    (FollowOptions, "count", 1, None),
    (PromoteOptions, "batch", 1, 1_000),
    (PromoteOptions, "poll_ms", 1, None),
    (PromoteOptions, "lock_ttl_s", 1, None),
    (ScheduleOptions, "tick_ms", 1, 3_600_000),
    (ScheduleOptions, "batch", 1, 1_000),
    (ScheduleOptions, "lock_ttl_s", 1, 86_400),
    (JanitorOptions, "every_ms", 1, None),
    (JanitorOptions, "ghost_idle_ms", 0, None),
    (JanitorOptions, "consumer_idle_ms", 0, None),
    (ResultOptions, "ttl_ms", 1, MAX_MS),
    (ResultOptions, "max_bytes", 1, None),
    (UntilOptions, "max_jobs", 1, None),
    (UntilOptions, "max_runtime_ms", 1, None),
    (WorkerOptions, "time_limit_ms", 1, None),
    (WorkerOptions, "concurrency", 1, None),
    (WorkerOptions, "drain_ms", 0, None),
]
CHOICES: list[tuple[type[Options], str, tuple[str, ...]]] = [
    (ProducerOptions, "on_full", ("raise", "wait", "trim")),
    (DurabilityOptions, "durability", ("memory", "local", "replicated")),
    (DeadOptions, "on_full", ("warn", "trim")),
]
DEFAULTS: list[tuple[Options, dict[str, Any]]] = [  # what the reference and its documents promise
    (
        ProducerOptions(),
        {"max_stream_len": 1_000_000, "max_delay_secs": 2_592_000, "on_full": "raise"},
    ),
    (DurabilityOptions(), {"durability": "memory", "replicas": 1, "durability_timeout_ms": 5_000}),
    (WorkerOptions(), {"group": "default", "concurrency": 100, "drain_ms": 25_000}),
    (ReadOptions(), {"block_ms": 5_000, "claim_idle_ms": 30_000, "max_payload_bytes": 1_048_576}),
    (RetryOptions(), {"max_attempts": 25, "delay_ms": 100, "max_delay_ms": 30_000}),
    (RetryOptions(), {"multiplier": 2.0, "jitter_ms": 100}),
    (DeadOptions(), {"max_len": 100_000, "on_full": "warn"}),
    (EventOptions(), {"enabled": True, "max_len": 100_000}),
    (FollowOptions(), {"block_ms": 5_000, "count": 100}),
    (PromoteOptions(), {"enabled": True, "batch": 256, "lock_ttl_s": 5}),
    (ScheduleOptions(), {"enabled": True, "tick_ms": 1_000, "batch": 256, "lock_ttl_s": 5}),
    (StreamOptions(), {"idmp_max_size": 10_000, "idmp_duration_s": 900}),
    (ConnectOptions(), {"timeout_ms": 10_000, "max_retries": None}),
]


def test_the_table_above_has_every_number() -> None:
    told = {(kind, name) for kind, name, _, _ in BOUNDS}
    for kind in Options.__subclasses__():
        if kind.__module__.startswith("chasquimq.spark."):
            continue  # they have their own: tests/unit/spark/test_options.py
        for name, annotation in kind.__annotations__.items():
            assert (kind, name) in told or annotation not in ("int", "int | None"), (kind, name)


@pytest.mark.parametrize(("kind", "name", "least", "most"), BOUNDS)
def test_an_option_is_accepted_up_to_its_bounds(
    kind: type[Options], name: str, least: int, most: int | None
) -> None:
    for value in (least, 10**9 if most is None else most):
        assert getattr(kind(**{name: value}), name) == value


@pytest.mark.parametrize(("kind", "name", "least", "most"), BOUNDS)
def test_an_option_beyond_its_bounds_is_refused_by_name(
    kind: type[Options], name: str, least: int, most: int | None
) -> None:
    for value in (least - 1, *(() if most is None else (most + 1,))):
        with pytest.raises(ConfigError, match=rf"^CMQ-004: {name} must be .*got {value}$"):
            kind(**{name: value})


@pytest.mark.parametrize("value", ["5", 5.0, True, [5]])
@pytest.mark.parametrize(("kind", "name", "least", "most"), BOUNDS)
def test_an_option_of_the_wrong_kind_is_refused_by_name(
    kind: type[Options], name: str, least: int, most: int | None, value: object
) -> None:
    with pytest.raises(ArgumentError, match=rf"^CMQ-004: {name} is a whole number, got "):
        kind(**{name: value})


@pytest.mark.parametrize(("kind", "name", "choices"), CHOICES)
def test_a_choice_is_one_of_those_on_offer(
    kind: type[Options], name: str, choices: tuple[str, ...]
) -> None:
    for choice in choices:
        assert getattr(kind(**{name: choice}), name) == choice
    for other in ("Raise", "", None, 1):
        with pytest.raises(ConfigError, match=", ".join(choices)):
            kind(**{name: other})


@pytest.mark.parametrize("multiplier", [0, 0.5, 2, 1e300, float("inf")])
def test_a_multiplier_is_any_number_from_zero(multiplier: float) -> None:
    assert RetryOptions(multiplier=multiplier).multiplier == multiplier


@pytest.mark.parametrize("multiplier", [-1, -0.1, float("nan"), float("-inf"), "2", None, True])
def test_a_multiplier_that_is_none_is_refused(multiplier: Any) -> None:
    with pytest.raises(ConfigError, match=r"^CMQ-004: multiplier "):
        RetryOptions(multiplier=multiplier)


def test_a_group_has_a_name() -> None:
    with pytest.raises(ConfigError, match="group must not be empty"):
        WorkerOptions(group="")


@pytest.mark.parametrize(("options", "expected"), DEFAULTS)
def test_defaults_are_the_documented_ones(options: Options, expected: dict[str, Any]) -> None:
    assert {name: getattr(options, name) for name in expected} == expected


def test_options_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        SettleOptions().batch = 2


def test_what_was_not_given_keeps_its_default() -> None:
    assert given(SettleOptions, batch=7, idle_ms=None) == SettleOptions(batch=7)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("concurency", "; did you mean 'concurrency'?"),
        ("max_attempt", "; did you mean 'max_attempts'?"),
        ("zzz", "; known: concurrency, max_attempts"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        refuse_unknown([name], ["max_attempts", "concurrency"], "Worker")
    assert str(caught.value) == f"CMQ-004: Worker has no option {name!r}{hint}"


class Door:
    @suggesting
    def __init__(self, name: str, *, concurrency: int = 1) -> None:
        self.concurrency = concurrency + len(name)


def test_a_door_suggests_only_when_asked_for_something_unknown() -> None:
    assert Door("a", concurrency=2).concurrency == 3
    with pytest.raises(ArgumentError, match="Door has no option 'concurency'; did you mean"):
        Door("a", concurency=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        Door()
    with pytest.raises(TypeError, match="unsupported operand"):
        Door("a", concurrency=None)


@pytest.mark.parametrize(("ttl_ms", "ttl_s"), [(1, 1), (1_000, 1), (1_001, 2), (3_600_000, 3_600)])
def test_a_result_lives_whole_seconds_and_no_fraction_less(ttl_ms: int, ttl_s: int) -> None:
    assert ResultOptions(ttl_ms=ttl_ms).ttl_s == ttl_s
