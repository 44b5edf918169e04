"""When a figure counts as moved. Noise comes from a seed; nothing is measured here."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Bench = Callable[[str], ModuleType]
STEADY = [0.99, 1.01, 1.0, 1.02, 0.98, 1.0, 1.01]


@pytest.fixture
def verdict(bench: Bench) -> ModuleType:
    return bench("verdict")


def pairs(rates: list[float], cpus: list[float] | None = None) -> list[Any]:
    """Rounds in which the old one had 100 of each."""
    cpus = cpus or [1.0] * len(rates)
    old = {"rate": 100.0, "cpu_per_100k": 100.0}
    return [
        ({"rate": 100 * rate, "cpu_per_100k": 100 * cpu}, old)
        for rate, cpu in zip(rates, cpus, strict=True)
    ]


@pytest.mark.parametrize(
    ("count", "confidence", "between"),
    [
        (3, 0.85, None),  # all three on one side: so it is in one case of four
        (4, 0.85, (1, 4)),
        (7, 0.85, (2, 6)),
        (7, 0.98, (1, 7)),
        (14, 0.98, (3, 12)),
        (6, 0.98, None),
    ],
)
def test_the_median_is_between_two_values(
    verdict: ModuleType, count: int, confidence: float, between: tuple[int, int] | None
) -> None:
    values = [float(number) for number in range(count, 0, -1)]
    assert verdict.median_between(values, confidence) == between


@pytest.mark.parametrize(
    ("ratios", "side"),
    [
        ([1.10, 1.05, 1.20, 1.08, 0.97, 1.06, 1.11], "above"),  # one of seven may stray
        ([1.10, 1.05, 1.20, 0.99, 0.97, 1.06, 1.11], None),
        ([0.90, 0.95, 0.80, 0.92, 1.03, 0.94, 0.89], "below"),
        ([1.02, 1.02, 1.01, 1.02, 1.02, 1.01, 1.02], None),  # sure, but not worth a word
        ([0.5, 0.5, 0.5], None),
        ([], None),
    ],
)
def test_a_suspicion(verdict: ModuleType, ratios: list[float], side: str | None) -> None:
    assert verdict.side_of(ratios, verdict.SUSPECTED) == side


def test_fewer_jobs_a_second_are_slower_once_they_were_seen_again(verdict: ModuleType) -> None:
    change = verdict.Change("a", pairs([0.9] * 7))
    assert change.is_suspected()
    assert change.verdict(verdict.RATE) == verdict.SAME  # nobody has looked again yet

    change.again = pairs([0.91] * 12 + [1.02, 1.03])
    assert change.verdict(verdict.RATE) == "slower"
    assert change.verdict(verdict.CPU) == verdict.SAME
    assert change.is_worse()
    assert verdict.moved([change]) == ["a: slower, 0.91x"]


@pytest.mark.parametrize("again", [STEADY * 2, [1.1] * 14, [0.9] * 11 + [1.1] * 3])
def test_what_is_not_seen_again_was_noise(verdict: ModuleType, again: list[float]) -> None:
    change = verdict.Change("a", pairs([0.9] * 7), pairs(again))
    assert change.verdict(verdict.RATE) == verdict.SAME
    assert not change.is_worse()
    assert verdict.moved([change]) == ["nothing moved by more than noise"]


@pytest.mark.parametrize(
    ("cpu", "told", "worse"), [(1.05, "more CPU", True), (0.95, "less CPU", False)]
)
def test_more_cpu_is_worse(verdict: ModuleType, cpu: float, told: str, worse: bool) -> None:
    change = verdict.Change("a", pairs(STEADY, [cpu] * 7), pairs(STEADY * 2, [cpu] * 14))
    assert change.verdict(verdict.RATE) == verdict.SAME
    assert change.verdict(verdict.CPU) == told
    assert change.is_worse() is worse


def test_faster_is_not_worse(verdict: ModuleType) -> None:
    change = verdict.Change("a", pairs([1.3] * 7), pairs([1.3] * 14))
    assert change.verdict(verdict.RATE) == "faster"
    assert not change.is_worse()


def test_three_rounds_are_too_few(verdict: ModuleType) -> None:
    change = verdict.Change("a", pairs([0.5] * 3))
    assert change.verdict(verdict.RATE) == verdict.TOO_FEW
    assert not change.is_suspected()


def test_an_old_commit_that_cannot_run_it_has_a_row_that_says_so(verdict: ModuleType) -> None:
    change = verdict.Change("a", pairs([0.5] * 7))  # it could at first
    change.add({"rate": 1.0}, {"cannot": "no such option"})
    assert change.to_dict() == {"scenario": "a", "cannot": "no such option"}
    assert not change.is_suspected()
    assert not change.is_worse()
    head, row = verdict.rows([change])
    assert len(head) == len(row)
    assert "the old one fails" in row


def found(verdict: ModuleType, shift: float, noise: float, dice: random.Random) -> str:
    """The verdict on a change of this size, under noise that is now and then ten times as big."""

    def rounds(count: int) -> list[Any]:
        spread = [noise * (10 if dice.random() < 0.1 else 1) for _ in range(count)]
        return pairs([shift * dice.lognormvariate(0, one) for one in spread])

    change = verdict.Change("a", rounds(7))
    if change.is_suspected():
        change.again = rounds(7 * verdict.AGAIN)
    return str(change.verdict(verdict.RATE))


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1, 0.3])
def test_the_same_code_is_the_same_nearly_always(verdict: ModuleType, noise: float) -> None:
    dice = random.Random(1)
    told = [found(verdict, 1.0, noise, dice) for _ in range(2000)]
    assert told.count(verdict.SAME) >= 1990


def test_a_tenth_is_found_in_noise_of_a_few_per_cent(verdict: ModuleType) -> None:
    dice = random.Random(1)
    told = [found(verdict, 0.9, 0.04, dice) for _ in range(500)]
    assert told.count("slower") >= 450
    assert told.count("faster") == 0
