"""How the jobs of a worker that died are taken up again: side by side, but the killer by itself.

Whatever a dead worker may have started is a suspect: one of them may have killed it. The suspects
of one dead worker begin slowly:

1. one runs, and the next may start once that one has ended, or has run for longer than it had when
   its worker died. For the first two seconds that is all: most killers kill at once, and then they
   take no other suspect down with them;
2. from then on each such proof lets one more run at the same time, so the number doubles while
   nothing dies. A suspect waits only for those whose crashed runs were not longer than its own;
3. those that have run only if the last acks of their worker were not written come after all that
   have run for certain, as long as those are soon proved;
4. a job that has seen two workers die, or has one run left, runs strictly alone.

A run that has lasted for much longer than its crashed one is no suspect any more, so that nobody
waits for the end of a job that hangs. Pure: what is known goes in, which suspects to start comes
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

SLOW_S = 2.0  # for so long the suspects of a crash start one at a time
FAR = 9  # times `mark_s`, which makes three leases


class Suspect(NamedTuple):
    """A pending entry of a silent consumer. `ran_s`: for how long it had run when that was last
    written down; None: it never was. `likely`: it has been started unless all is misleading; else
    only if acks had not been written yet."""

    entry_id: bytes
    consumer: bytes
    idle_ms: int
    deliveries: int
    ran_s: float | None = None
    likely: bool = True


class Run(NamedTuple):
    suspect: Suspect
    proved_at: float  # by then it has outlived the run that ended with its worker
    cleared_at: float  # by then it has outlived it by far


class Pace:
    """`mark_s`: how often workers write down what they run, so how wrong `ran_s` may be."""

    def __init__(self, mark_s: float, max_attempts: int) -> None:
        self._mark_s = mark_s
        self._max_attempts = max_attempts
        self._allowed: Counter[bytes] = Counter()  # proofs, by dead consumer
        self._begun: dict[bytes, float] = {}  # when the first of its suspects was started
        self._runs: dict[bytes, Run] = {}  # by entry id
        self._doubtful: set[bytes] = set()  # ids of runs without a proof

    @property
    def running(self) -> int:
        return len(self._runs)

    def started(self, suspect: Suspect, now: float) -> None:
        crashed_s = self._crashed_s(suspect)
        # One that has seen many workers die has to last for longer, for it may strike at random.
        cleared_s = max(suspect.deliveries, 1) * (crashed_s + FAR * self._mark_s)
        self._runs[suspect.entry_id] = Run(suspect, now + crashed_s, now + cleared_s)
        self._doubtful.add(suspect.entry_id)
        self._begun.setdefault(suspect.consumer, now)

    def postponed(self, entry_ids: Iterable[bytes], now: float) -> None:
        """These have not been started yet, after all: there was no slot for them."""
        for entry_id in entry_ids:
            if entry_id in self._runs:
                self.started(self._runs[entry_id].suspect, now)

    def ended(self, entry_id: bytes) -> None:
        """It was settled, and its worker lives."""
        self._prove(entry_id)
        self._runs.pop(entry_id, None)

    def withdrawn(self, entry_id: bytes) -> None:
        """It was not started after all."""
        self._doubtful.discard(entry_id)
        self._runs.pop(entry_id, None)

    def next_change(self, now: float) -> float | None:
        """When more may start, if nothing ends until then."""
        times = [self._runs[one].proved_at for one in self._doubtful]
        times += [run.cleared_at for run in self._runs.values()]
        times += [begun + SLOW_S for begun in self._begun.values()]
        return min((one for one in times if one > now), default=None)

    def choose(self, waiting: Sequence[Suspect], now: float, places: int) -> list[Suspect]:
        """Which of those that wait may start now."""
        for entry_id in [one for one in self._doubtful if self._runs[one].proved_at <= now]:
            self._prove(entry_id)
        for entry_id in [one for one, run in self._runs.items() if run.cleared_at <= now]:
            del self._runs[entry_id]
        if places < 1 or any(self._alone(run.suspect) for run in self._runs.values()):
            return []
        free = sorted((one for one in waiting if not self._alone(one)), key=self._rank)
        chosen = list(islice(self._within_allowance(free, now), places))
        if not chosen and not free and not self._runs:
            chosen = sorted(waiting, key=self._rank)[:1]
        self._forget(waiting)
        return chosen

    def _crashed_s(self, suspect: Suspect) -> float:
        """For how long it had run at the most."""
        return self._mark_s if suspect.ran_s is None else suspect.ran_s + 2 * self._mark_s

    def _rank(self, suspect: Suspect) -> tuple[float, bool, int]:
        """What had run for a moment only is proved soonest, and holds up the others least. Of those
        that were never written down the youngest had run for the shortest time."""
        return self._crashed_s(suspect), not suspect.likely, suspect.idle_ms

    def _alone(self, suspect: Suspect) -> bool:
        """Two crashes are no accident; and a last run is not risked beside a suspect."""
        return suspect.deliveries > 1 or suspect.deliveries + 1 == self._max_attempts

    def _within_allowance(self, suspects: Iterable[Suspect], now: float) -> Iterable[Suspect]:
        """`suspects` come in the order of their ranks."""
        doubtful = [self._runs[one].suspect for one in self._doubtful]
        # Consumers of whom likely ones that are soon proved wait, or have no proof yet.
        expected = {one.consumer for one in doubtful if one.likely and one.ran_s is None}
        full: set[bytes] = set()  # consumers of whom no more may start
        for suspect in suspects:
            consumer, crashed_s = suspect.consumer, self._crashed_s(suspect)
            if suspect.likely and suspect.ran_s is None:
                expected.add(consumer)
            if consumer in full or (not suspect.likely and consumer in expected):
                continue
            mine = [one for one in doubtful if one.consumer == consumer]
            ahead = sum(self._crashed_s(one) <= crashed_s for one in mine)
            if ahead > self._allowance(consumer, now):
                full.add(consumer)
                continue
            doubtful.append(suspect)
            yield suspect

    def _allowance(self, consumer: bytes, now: float) -> int:
        """How many may run beside one without a proof."""
        slow = now - self._begun.get(consumer, now) < SLOW_S
        return 0 if slow else self._allowed[consumer]

    def _prove(self, entry_id: bytes) -> None:
        if entry_id in self._doubtful:
            self._doubtful.remove(entry_id)
            self._allowed[self._runs[entry_id].suspect.consumer] += 1

    def _forget(self, waiting: Sequence[Suspect]) -> None:
        """Drop what is known of consumers of whom nothing is left."""
        left = {one.consumer for one in waiting}
        left.update(run.suspect.consumer for run in self._runs.values())
        for consumer in self._begun.keys() - left:
            del self._begun[consumer]
            self._allowed.pop(consumer, None)
