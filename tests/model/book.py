"""The model: where each job of a queue must be, after whatever was done to it. No server, no clock.

    stream     entries in order; one without an owner waits, the others are pending
    delayed    a score each; those up to DUE are due
    dead       in order of burial
    done       acked or cancelled; `kept` are those with a result

An entry is told by its number in the order of all that ever came into the stream, because servers
give ids of their own. `hands` is what each consumer believes to hold, which may no longer be so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

WHO = ("w1", "w2", "w3")
DUE = 1_000_000_000_000  # scores below have passed on every clock
AHEAD = 4_000_000_000_000
SPECS = ("a", "b")


@dataclass
class Entry:
    number: int
    job: str
    owner: str | None = None
    deliveries: int = 0
    silent: bool = False  # idle for longer than a lease
    given_back: bool = False  # left pending for others to claim


@dataclass
class Late:
    """A job in the delayed set. Retries have no index, and cannot be found by their id."""

    score: int
    indexed: bool


class Held(NamedTuple):
    number: int
    job: str
    before: int  # deliveries before ours


class View(NamedTuple):
    """A queue as everyone can see it; what a server holds reads the same."""

    stream: list[tuple[str, int, str | None, int]]  # job, attempt, owner, deliveries
    delayed: dict[str, int]
    dead: list[str]
    kept: set[str]
    specs: dict[str, int]
    paused: bool


@dataclass
class Book:
    stream: list[Entry] = field(default_factory=list)
    delayed: dict[str, Late] = field(default_factory=dict)
    dead: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    attempts: dict[str, int] = field(default_factory=dict)
    specs: dict[str, tuple[int, int]] = field(default_factory=dict)  # score, edition
    sights: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    hands: dict[str, list[Held]] = field(default_factory=lambda: {who: [] for who in WHO})
    paused: bool = False
    promoter: str | None = None
    scheduler: str | None = None
    _count: int = 0

    def tick(self) -> int:
        """A number that was never given before."""
        self._count += 1
        return self._count

    # -- questions -----------------------------------------------------------------------------

    def view(self) -> View:
        rows = [(e.job, self.attempts[e.job], e.owner, e.deliveries) for e in self.stream]
        delayed = {job: late.score for job, late in self.delayed.items()}
        specs = {key: score for key, (score, _) in self.specs.items()}
        return View(rows, delayed, list(self.dead), set(self.kept), specs, self.paused)

    def entry(self, number: int) -> Entry | None:
        return next((one for one in self.stream if one.number == number), None)

    def owned(self, who: str, number: int) -> Entry | None:
        """The entry, if it is pending under this name."""
        entry = self.entry(number)
        return entry if entry is not None and entry.owner == who else None

    def pending(self, who: str | None = None) -> list[Entry]:
        held = [one for one in self.stream if one.owner is not None]
        return held if who is None else [one for one in held if one.owner == who]

    def findable(self, job: str) -> bool:
        return job in self.delayed and self.delayed[job].indexed

    def check_itself(self) -> None:
        """Each job that ever came in is in exactly one place."""
        places = [e.job for e in self.stream] + list(self.delayed) + self.dead + list(self.done)
        assert sorted(places) == sorted(self.attempts), "the model itself lost or doubled a job"

    # -- moves ---------------------------------------------------------------------------------

    def arrive(self, job: str, attempt: int | None = None) -> None:
        """Into the stream, behind all others."""
        if attempt is not None:
            self.attempts[job] = attempt
        self.stream.append(Entry(self.tick(), job))

    def read(self, who: str, count: int, *, lost: bool = False) -> None:
        for entry in [one for one in self.stream if one.owner is None][:count]:
            entry.owner, entry.deliveries = who, 1
            if not lost:
                self.hold(who, entry, 0)

    def hold(self, who: str, entry: Entry, before: int) -> None:
        """Who holds it already goes on with what was first held: it runs there."""
        if all(held.number != entry.number for held in self.hands[who]):
            self.hands[who].append(Held(entry.number, entry.job, before))

    def take_over(self, who: str, entry: Entry) -> None:
        """A delivery more, and it is ours."""
        self.hold(who, entry, entry.deliveries)
        entry.owner, entry.deliveries = who, entry.deliveries + 1
        entry.silent = entry.given_back = False

    def end(self, entry: Entry) -> str:
        self.stream.remove(entry)
        return entry.job

    def give_back(self, who: str, held: Held) -> int:
        entry = self.owned(who, held.number)
        if entry is None:
            return 0
        if held.before == 0:
            self.arrive(self.end(entry))
        else:
            entry.deliveries, entry.silent, entry.given_back = held.before, True, True
        return 1

    def fall_silent(self, who: str) -> list[Entry]:
        """Time passes, and nobody renewed what this one holds."""
        entries = [one for one in self.pending(who) if not one.given_back]
        for entry in entries:
            entry.silent = True
        return entries

    def lose_group(self) -> None:
        for entry in self.stream:
            entry.owner, entry.deliveries = None, 0
            entry.silent = entry.given_back = False

    def due(self, batch: int) -> list[str]:
        ready = [job for job, late in self.delayed.items() if late.score <= DUE]
        return sorted(ready, key=lambda job: self.delayed[job].score)[:batch]
