"""The verdict on a run: the ledger and a final scan, judged as Jepsen's total-queue does.

I1 no loss         an accepted job has ended, or is in exactly one place
I2 no invention    nothing ran or lies on the server that was never attempted, or was refused
I3 duplicates      bounded, and each one charged to a process that died or stood still
I4 no overlap      two live runs of one job never coincide, unless one's process stood still
I5 exact budget    runs stay within max_attempts; no completed job is dead, no job dead twice
I6 nothing stuck   nothing left to do, no ghosts, nothing stranded
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.kit.ledger import Record, read
from tests.chaos.kit.scan import Scan

_SHOWN = 5


@dataclass(frozen=True)
class Overlap:
    job: str
    first_pid: int
    second_pid: int


@dataclass(frozen=True)
class Verdict:
    accepted: frozenset[str]
    unconfirmed: frozenset[str]
    """Neither accepted nor refused; also those whose producer died before it had an answer."""
    refused: frozenset[str]
    completed: frozenset[str]
    lost: frozenset[str]
    """Accepted, not completed, and nowhere on the server."""
    recovered: frozenset[str]
    """Unconfirmed, and in after all."""
    unexpected: frozenset[str]
    refused_but_ran: frozenset[str]
    runs: Mapping[str, int]
    duplicated: Mapping[str, int]
    """Jobs with more than one run that did not fail, and how many. Retries are not duplicates."""
    uncharged: Mapping[str, int]
    """Of these, the runs that no death of a process explains."""
    overlaps: tuple[Overlap, ...]
    excused: tuple[Overlap, ...]
    """Those of a process that was frozen past its lease, until it has heard of its loss."""
    in_two_places: frozenset[str]
    dead_and_completed: frozenset[str]
    scan: Scan

    def problems(
        self,
        *,
        duplicates_allowed: int = 0,
        overlaps_allowed: int = 0,
        charged_only: bool = False,
        max_attempts: int | None = None,
        drained: bool = True,
    ) -> list[str]:
        """What is wrong, each with its invariant; empty when the run was a good one.

        `duplicates_allowed` bounds the jobs that ran twice; with `charged_only` each of them
        must also be explained by a death. `drained=False` is for runs that leave work behind.
        """
        budget = max_attempts or max(self.runs.values(), default=0)
        over_budget = [job for job, runs in self.runs.items() if runs > budget]
        dead_twice = [job for job, times in Counter(self.scan.dead).items() if times > 1]
        left = [*self.scan.unread, *self.scan.pending, *self.scan.delayed] if drained else []
        twice = self.duplicated if len(self.duplicated) > duplicates_allowed else ()
        at_once = self.overlaps if len(self.overlaps) > overlaps_allowed else ()
        found: list[tuple[str, Iterable[object]]] = [
            ("I1 lost", self.lost),
            ("I1 in two places", self.in_two_places),
            ("I2 never attempted", self.unexpected),
            ("I2 refused, but ran", self.refused_but_ran),
            (f"I3 duplicated, {duplicates_allowed} allowed", twice),
            ("I3 duplicated without a crash", self.uncharged if charged_only else ()),
            (f"I4 overlapping, {overlaps_allowed} allowed", at_once),
            (f"I5 run more than {budget} times", over_budget),
            ("I5 dead twice", dead_twice),
            ("I5 dead and completed", self.dead_and_completed),
            ("I6 left to do", left),
            ("I6 stranded", self.scan.stranded),
            ("I6 ghosts", self.scan.ghosts),
            ("I6 unreadable", range(self.scan.unreadable)),
        ]
        return [_problem(what, sorted(which, key=str)) for what, which in found if which]

    def __str__(self) -> str:
        return (
            f"accepted {len(self.accepted)}, unconfirmed {len(self.unconfirmed)}"
            f" (in: {len(self.recovered)}), refused {len(self.refused)},"
            f" completed {len(self.completed)}, lost {len(self.lost)},"
            f" unexpected {len(self.unexpected)}, duplicated {len(self.duplicated)}"
            f" (uncharged: {len(self.uncharged)}), overlaps {len(self.overlaps)},"
            f" dead {len(self.scan.dead)}"
        )


def check(ledger: Path | str, seen: Scan) -> Verdict:
    """Judge a ledger and the scan taken after its last fact."""
    story = _Story()
    for record in read(ledger):
        story.tell(record)

    told = story.told
    accepted = frozenset(told["accepted"])
    refused = frozenset(told["refused"] - accepted - told["unconfirmed"])
    asked = told["attempted"] | told["unconfirmed"] | told["accepted"] | told["refused"]
    unconfirmed = frozenset(asked - accepted - refused)
    present = Counter(seen.present)
    touched = story.starts.keys() | present.keys()
    completed = frozenset(told["end"])
    useful = {job: runs - story.failures[job] for job, runs in story.starts.items()}
    duplicated = {job: runs for job, runs in useful.items() if runs > 1}

    return Verdict(
        accepted=accepted,
        unconfirmed=unconfirmed,
        refused=refused,
        completed=completed,
        lost=accepted - completed - present.keys(),
        recovered=unconfirmed & touched,
        unexpected=frozenset(touched - asked),
        refused_but_ran=refused & touched,
        runs=dict(story.starts),
        duplicated=duplicated,
        uncharged={job: story.uncharged[job] for job in duplicated if story.uncharged[job]},
        overlaps=tuple(story.overlaps),
        excused=tuple(story.excused),
        in_two_places=frozenset(job for job, places in present.items() if places > 1),
        dead_and_completed=completed & frozenset(seen.dead),
        scan=seen,
    )


@dataclass
class _Story:
    """The ledger, told line by line."""

    told: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    starts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    deaths: Counter[str] = field(default_factory=Counter)
    uncharged: Counter[str] = field(default_factory=Counter)
    overlaps: list[Overlap] = field(default_factory=list)
    excused: list[Overlap] = field(default_factory=list)
    _frozen: set[int] = field(default_factory=set)
    _live: defaultdict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    _touched_by: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def tell(self, fact: Record) -> None:
        if fact.event in ("dead", "frozen", "thawed"):
            self._suffer(fact)
            return
        self.told[fact.event].add(fact.job)
        if fact.event == "start":
            self._start(fact)
        elif fact.event in ("end", "failed"):
            self._live[fact.job].pop(fact.run, None)
            self.failures[fact.job] += fact.event == "failed"

    def _start(self, fact: Record) -> None:
        live = self._live[fact.job]
        for pid in live.values():
            known = self.excused if {pid, fact.pid} & self._frozen else self.overlaps
            known.append(Overlap(fact.job, pid, fact.pid))
        live[fact.run] = fact.pid
        again = self.starts[fact.job] - self.failures[fact.job]
        # Deaths that come later, such as the end of the test, explain nothing.
        explained = again <= self.deaths[fact.job] or fact.pid in self._frozen
        self.uncharged[fact.job] += not explained
        self.starts[fact.job] += 1
        self._touched_by[fact.pid].add(fact.job)

    def _suffer(self, fact: Record) -> None:
        match fact.event:
            case "dead":
                self._bury(fact.pid)
            case "frozen":
                self._frozen.add(fact.pid)
                self.deaths.update(self._touched_by[fact.pid])
            case _:
                self._frozen.discard(fact.pid)

    def _bury(self, pid: int) -> None:
        for job in self._touched_by.pop(pid, ()):
            self.deaths[job] += 1
            live = self._live[job]
            for run in [run for run, owner in live.items() if owner == pid]:
                del live[run]


def _problem(what: str, which: list[object]) -> str:
    shown = ", ".join(map(str, which[:_SHOWN])) + (", ..." if len(which) > _SHOWN else "")
    return f"{what}: {len(which)} ({shown})"
