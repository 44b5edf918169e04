"""What differs from seed to seed: how many jobs, how long they take, when the fault comes.

CHAOS_SEED is the seed. Without it every scenario is as it is written down, which is its short form.
CHAOS_VERDICTS is a file to which each verdict is appended, one JSON line each.
"""

from __future__ import annotations

import json
import os
from random import Random

from tests.chaos.kit.history import Verdict

SEED = os.environ.get("CHAOS_SEED", "")


def vary(what: str, usual: int, low: int, high: int) -> int:
    """`usual`, or with a seed a number from `low` to `high`, the same for the same test."""
    return Random(f"{SEED} {what} {_test()}").randint(low, high) if SEED else usual


def vary_s(what: str, usual: float, low: float, high: float) -> float:
    """The same for seconds."""
    return Random(f"{SEED} {what} {_test()}").uniform(low, high) if SEED else usual


def note(verdict: Verdict) -> Verdict:
    """Write its figures down, if anybody wants them."""
    file = os.environ.get("CHAOS_VERDICTS")
    if file:
        figures = {
            "test": _test(),
            "accepted": len(verdict.accepted),
            "lost": len(verdict.lost),
            "duplicates": len(verdict.duplicated),
            "overlaps": len(verdict.overlaps),
        }
        with open(file, "a") as out:
            out.write(json.dumps(figures) + "\n")
    return verdict


def _test() -> str:
    """The id of the test that runs, as pytest has it."""
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
