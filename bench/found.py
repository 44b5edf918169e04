"""What the full benchmark has found: every run, by case, side and round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from contest import Aim, Case

Result = dict[str, Any]


class Promise(NamedTuple):
    """What another job queue promises of a job, and how its worker was run."""

    guarantee: str
    how: str


@dataclass
class Found:
    cases: Sequence[Case]
    rounds: int
    runs: dict[str, dict[str, dict[int, Result]]] = field(default_factory=dict)
    problems: dict[str, dict[str, str]] = field(default_factory=dict)  # of a side that failed
    cannot: dict[str, dict[str, str]] = field(default_factory=dict)  # ... or has no such thing
    peers: dict[str, Promise] = field(default_factory=dict)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)  # of each side

    def add(self, number: int, case: Case, side: str, result: Result) -> None:
        for kind, told in (("failed", self.problems), ("cannot", self.cannot)):
            if kind in result:
                told.setdefault(case.key, {})[side] = result[kind]
                return
        loop = {"event loop": result["loop"]} if "loop" in result else {}
        self.packages[side] = result.pop("packages", {}) | loop
        self.runs.setdefault(case.key, {}).setdefault(side, {})[number] = _rounded(result)

    def is_out(self, case: Case, side: str) -> bool:
        """It has failed in this case before, and would again."""
        return any(side in told.get(case.key, {}) for told in (self.problems, self.cannot))

    def sides(self, case: str) -> list[str]:
        return list(self.runs.get(case, {}))

    def values(self, case: str, side: str, figure: str) -> list[float]:
        runs = self.runs.get(case, {}).get(side, {})
        return [run[figure] for run in runs.values() if figure in run]

    def median(self, case: str, side: str, figure: str) -> float | None:
        values = self.values(case, side, figure)
        return median(values) if values else None

    def ratios(self, case: str, mine: str, theirs: str, figure: str = "rate") -> list[float]:
        """Of the rounds in which both ran."""
        sides = self.runs.get(case, {})
        ours, others = sides.get(mine, {}), sides.get(theirs, {})
        return [
            run[figure] / others[number][figure]
            for number, run in ours.items()
            if figure in run and others.get(number, {}).get(figure)
        ]

    def ratios_of(self, aim: Aim) -> list[float]:
        return self.ratios(aim.case, aim.mine, aim.theirs, aim.figure)

    def title(self, key: str) -> str:
        return next((case.title for case in self.cases if case.key == key), key)

    def group(self, name: str) -> list[Case]:
        return [case for case in self.cases if case.group == name and case.key in self.runs]

    def groups(self) -> list[str]:
        return list(dict.fromkeys(case.group for case in self.cases if case.group))

    def others(self) -> str:
        """How disturbed it was: cores used by neither a side nor its server."""
        seen = [run["others"] for run in self._all()]
        return f"median {median(seen):.1f}, at most {max(seen):.1f}" if seen else "unknown"

    def _all(self) -> Iterable[Result]:
        for sides in self.runs.values():
            for rounds in sides.values():
                yield from rounds.values()

    def to_dict(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "cases": [
                {"key": case.key, "title": case.title, "group": case.group, "step": case.step}
                for case in self.cases
            ],
            "runs": {
                case: {side: _told(rounds, self.rounds) for side, rounds in sides.items()}
                for case, sides in self.runs.items()
            },
            "failed": self.problems,
            "cannot": self.cannot,
            "peers": {name: promise._asdict() for name, promise in self.peers.items()},
            "packages": self.packages,
        }

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Found:
        """What a report's JSON tells."""
        found = cls([Case(**case, orders={}, jobs={}) for case in raw["cases"]], raw["rounds"])
        found.problems, found.cannot = raw["failed"], raw["cannot"]
        found.peers = {name: Promise(**one) for name, one in raw["peers"].items()}
        found.packages = raw["packages"]
        found.runs = {
            case: {
                side: {number: run for number, run in enumerate(rounds) if run is not None}
                for side, rounds in sides.items()
            }
            for case, sides in raw["runs"].items()
        }
        return found


def _told(rounds: dict[int, Result], count: int) -> list[Result | None]:
    """A list with a place for each round."""
    return [rounds.get(number) for number in range(count)]


def _rounded(result: Result) -> Result:
    """Five digits: what the page shows is what the JSON holds."""
    return {
        name: float(f"{value:.5g}") if isinstance(value, float) else value
        for name, value in result.items()
    }
