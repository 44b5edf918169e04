"""Chains of fires that were recorded from the reference, each walked with our own `after`.

The texts of its errors need not be ours; that it refuses, or has no further fire, must be.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from chasquimq.errors import ConfigError
from chasquimq.policy.cron import read_cron

RECORDED = json.loads((Path(__file__).parent / "vectors.json").read_text())["cron_next_fire"]


class Case(NamedTuple):
    expression: str
    tz: str | None
    start_ms: int

    def __str__(self) -> str:
        return f"{self.expression} {self.tz} {self.start_ms}"


CASES: dict[Case, list[int | str]] = {
    Case(found["expr"], found["tz"], found["start_after_ms"]): found["next"]
    for found in RECORDED["cases"]
}

# Where ours is another chain on purpose (docs/decisions/0029-daylight-saving.md):
# 1  fires are on whole seconds: the start's milliseconds do not go into them
# 2  a pattern for every hour fires in both passes of the repeated hour
NEW_YORK = "America/New_York"
DEVIATIONS: dict[Case, tuple[int, list[int]]] = {
    Case("0 12 * * *", None, 1798761600123): (1, [1798804800000, 1798891200000]),
    Case("*/5 * * * * *", None, 1798761600123): (1, [1798761605000, 1798761610000]),
    Case("0 0 1 1 *", None, 1798761599999): (1, [1798761600000, 1830297600000]),
    Case("*/30 * * * *", NEW_YORK, 1825561740000): (
        2,
        [
            1825561800000,
            1825563600000,  # 01:00, first pass
            1825565400000,
            1825567200000,  # 01:00, second pass
            1825569000000,
            1825570800000,
            1825572600000,
        ],
    ),
    Case("0 * * * *", NEW_YORK, 1825561740000): (
        2,
        [
            1825563600000,  # 01:00, first pass
            1825567200000,  # 01:00, second pass
            1825570800000,
            1825574400000,
            1825578000000,
            1825581600000,
            1825585200000,
        ],
    ),
}


def chain(case: Case, steps: int) -> list[int | None]:
    """As many fires as there are, at most `steps`; None when there is none any more."""
    cron = read_cron(case.expression, case.tz)
    fires: list[int | None] = []
    at: int | None = case.start_ms
    while at is not None and len(fires) < steps:
        at = cron.after(at)
        fires.append(at)
    return fires


def test_every_chain_is_there() -> None:
    assert len(CASES) == len(RECORDED["cases"]) == 88
    assert set(DEVIATIONS) <= set(CASES)
    for case, (_, ours) in DEVIATIONS.items():
        assert ours != CASES[case]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_chain_of_fires_is_the_recorded_one(case: Case) -> None:
    recorded = CASES[case]
    if case in DEVIATIONS:
        assert chain(case, len(recorded)) == DEVIATIONS[case][1]
        return
    fires = [fire for fire in recorded if isinstance(fire, int)]
    if len(fires) == len(recorded):
        assert chain(case, len(recorded)) == fires
        return
    last = recorded[-1]
    assert isinstance(last, str) and last.startswith("ERR config: ")
    try:
        ours = chain(case, len(recorded))
    except ConfigError:
        assert not fires
    else:
        assert "limit exceeded" in last  # it could be read: it is over, or always was
        assert ours == [*fires, None]
