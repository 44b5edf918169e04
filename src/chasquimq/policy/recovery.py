"""How the jobs of a worker that died are taken up again: side by side, but the killer by itself.

Whatever a dead worker may have started is a suspect: one of them may have killed it. The suspects
of one dead worker begin slowly. One runs, and the next may start once that one has ended, or has
run for longer than it had when its worker died. Each such proof lets one more run at the same time,
so the number doubles while nothing dies. A job that has seen two workers die, or has one run left,
runs strictly alone. Pure: what is known goes in, which suspects to start comes out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Suspect(NamedTuple):
    """A pending entry of a silent consumer. `ran_s`: for how long it had run when that was last
    written down; None: it never was."""

    entry_id: bytes
    consumer: bytes
    idle_ms: int
    deliveries: int
    ran_s: float | None = None


class Run(NamedTuple):
    suspect: Suspect
    proved_at: float  # by then it has outlived the run that ended with its worker


class Pace:
    """`mark_s`: how often workers write down what they run, so how wrong `ran_s` may be."""

    def __init__(self, mark_s: float, max_attempts: int) -> None:
        self._mark_s = mark_s
        self._max_attempts = max_attempts
        self._allowed: Counter[bytes] = Counter()  # proofs, by dead consumer
        self._runs: dict[bytes, Run] = {}  # by entry id
        self._doubtful: set[bytes] = set()  # ids of runs without a proof

    @property
    def running(self) -> int:
        return len(self._runs)

    def started(self, suspect: Suspect, now: float) -> None:
        ran_s = 0.0 if suspect.ran_s is None else suspect.ran_s + self._mark_s
        self._runs[suspect.entry_id] = Run(suspect, now + ran_s + self._mark_s)
        self._doubtful.add(suspect.entry_id)

    def ended(self, entry_id: bytes) -> None:
        """It was settled, and its worker lives."""
        self._prove(entry_id)
        self._runs.pop(entry_id, None)

    def withdrawn(self, entry_id: bytes) -> None:
        """It was not started after all."""
        self._doubtful.discard(entry_id)
        self._runs.pop(entry_id, None)

    def next_proof(self) -> float | None:
        """When the next running suspect will have outlived its crashed run."""
        return min((self._runs[one].proved_at for one in self._doubtful), default=None)

    def choose(self, waiting: Sequence[Suspect], now: float, places: int) -> list[Suspect]:
        """Which of those that wait may start now."""
        for entry_id in [one for one in self._doubtful if self._runs[one].proved_at <= now]:
            self._prove(entry_id)
        if places < 1 or any(self._alone(run.suspect) for run in self._runs.values()):
            return []
        free = sorted((one for one in waiting if not self._alone(one)), key=_shortest_first)
        chosen = list(self._within_allowance(free))[:places]
        if not chosen and not free and not self._runs:
            chosen = list(waiting[:1])
        self._forget(waiting)
        return chosen

    def _alone(self, suspect: Suspect) -> bool:
        """Two crashes are no accident; and a last run is not risked beside a suspect."""
        return suspect.deliveries > 1 or suspect.deliveries + 1 == self._max_attempts

    def _within_allowance(self, suspects: Iterable[Suspect]) -> Iterable[Suspect]:
        doubtful = Counter(self._runs[one].suspect.consumer for one in self._doubtful)
        for suspect in suspects:
            if doubtful[suspect.consumer] <= self._allowed[suspect.consumer]:
                doubtful[suspect.consumer] += 1
                yield suspect

    def _prove(self, entry_id: bytes) -> None:
        if entry_id in self._doubtful:
            self._doubtful.remove(entry_id)
            self._allowed[self._runs[entry_id].suspect.consumer] += 1

    def _forget(self, waiting: Sequence[Suspect]) -> None:
        """Drop what is known of consumers of whom nothing is left."""
        left = {one.consumer for one in waiting}
        left.update(run.suspect.consumer for run in self._runs.values())
        for consumer in self._allowed.keys() - left:
            del self._allowed[consumer]


def _shortest_first(suspect: Suspect) -> tuple[float, int]:
    """What had run for a moment only is proved soonest, and holds up the others least."""
    return -1.0 if suspect.ran_s is None else suspect.ran_s, -suspect.idle_ms
