"""The model: where each job of a queue must be, after whatever was done to it. No server, no clock.

    stream     entries in order; one without an owner waits, the others are pending
    delayed    a score each; those up to DUE are due
    dead       in order of burial
    done       acked or cancelled; `kept` are results, by id
    gone       what strangers deleted before it was done, and what operators purged

A job is told by its id, one whose id is unique by when it was created as well: `id#created`. An
entry is told by its number in the order of all that ever came into the stream, a dead one likewise,
because servers give ids of their own. `hands` is what each consumer believes to hold, which may no
longer be so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from chasquimq.repeat import PAUSED_MS

WHO = ("w1", "w2", "w3")
DUE = 1_000_000_000_000  # scores below have passed on every clock
AHEAD = 4_000_000_000_000
NEVER = PAUSED_MS  # of a spec that was put aside
SPECS = ("a", "b")
UNIQUE = ("one-a", "one-b")  # until their jobs are done
ONCE = ("while-a", "while-b")  # for a while


@dataclass
class Entry:
    number: int
    job: str
    hint: bool = False  # it says that its id is unique until it is done
    owner: str | None = None
    deliveries: int = 0
    silent: bool = False  # idle for longer than a lease
    given_back: bool = False  # left pending for others to claim
    bare: bool = False  # a stranger deleted its body


class Held(NamedTuple):
    number: int
    job: str
    before: int  # deliveries before ours
    hint: bool


class Dead(NamedTuple):
    number: int
    job: str
    hint: bool = False


class Mark(NamedTuple):
    """What keeps others from adding an id; `token` tells whose command wrote it."""

    created: int
    token: str
    done: bool = False

    def __str__(self) -> str:
        return f"{'-' * self.done}{self.created or self.token}"


class Spec(NamedTuple):
    score: int
    edition: int | None  # None: somebody removed its recipe
    aside: str | None = None
    fired: int = 0

    def same(self, seen: Spec) -> bool:
        """Whether it is as somebody saw it, as far as that counts."""
        return (self.score, self.edition) == (seen.score, seen.edition)


class View(NamedTuple):
    """A queue as everyone can see it; what a server holds reads the same."""

    stream: list[tuple[str, int, bool, str | None, int]]  # job, attempt, hint, owner, deliveries
    ghosts: list[tuple[str | None, int]]  # owner and deliveries of what is pending without a body
    delayed: dict[str, int]
    dead: list[tuple[str, bool]]
    kept: set[str]
    marks: dict[str, str]
    index: set[str]
    specs: dict[str, Spec]
    locks: tuple[str | None, str | None]
    paused: bool


class Told(NamedTuple):
    """What people are told who ask about a queue, in one way and in another."""

    counts: tuple[int, ...]  # waiting, running, delayed, dead, specs
    again: tuple[int, ...]
    ghosts: int
    dead_lately: int
    due: tuple[int, int, int]  # delayed, specs; specs that were put aside
    empty: list[str]  # specs without a recipe
    locks: tuple[str | None, str | None]


def ident(job: str) -> str:
    """The id of a job."""
    return job.partition("#")[0]


def is_garbage(job: str) -> bool:
    """What is no job is named by its bytes."""
    return job.startswith(("b'", 'b"'))


@dataclass
class Book:
    stream: list[Entry] = field(default_factory=list)
    delayed: dict[str, int] = field(default_factory=dict)
    dead: list[Dead] = field(default_factory=list)
    purged: list[Dead] = field(default_factory=list)
    returned: list[Dead] = field(default_factory=list)  # rows that were put back, as others
    done: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    delivered: int = 0  # the newest entry that the group was given
    kept: dict[str, bytes] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)  # they live, and their ids are free: a limit passed
    index: dict[str, str] = field(default_factory=dict)  # of an id, the job that it leads to
    specs: dict[str, Spec] = field(default_factory=dict)
    sights: dict[str, dict[str, Spec]] = field(default_factory=dict)
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
        whole = [e for e in self.stream if not e.bare]
        rows = [(e.job, self.attempts[e.job], e.hint, e.owner, e.deliveries) for e in whole]
        return View(
            stream=rows,
            ghosts=[(e.owner, e.deliveries) for e in self.stream if e.bare],
            delayed=dict(self.delayed),
            dead=[(one.job, one.hint) for one in self.dead],
            kept=set(self.kept),
            marks={key: str(mark) for key, mark in self.marks.items()},
            index=set(self.index),
            specs=dict(self.specs),
            locks=(self.promoter, self.scheduler),
            paused=self.paused,
        )

    def told(self) -> Told:
        running, specs = len(self.pending()), self.specs.values()
        many = (len(self.waiting()), running, len(self.delayed), len(self.dead), len(specs))
        late = sum(score <= DUE for score in self.delayed.values())
        ready = sum(one.score <= DUE for one in specs)
        return Told(
            counts=many,
            again=many,
            ghosts=sum(one.bare for one in self.stream),
            dead_lately=len(self.dead),
            due=(late, ready, sum(one.score == NEVER for one in specs)),
            empty=sorted(key for key, one in self.specs.items() if one.edition is None),
            locks=(self.promoter, self.scheduler),
        )

    def entry(self, number: int) -> Entry | None:
        return next((one for one in self.stream if one.number == number), None)

    def owned(self, who: str, number: int) -> Entry | None:
        """The entry, if it is pending under this name."""
        entry = self.entry(number)
        return entry if entry is not None and entry.owner == who else None

    def waiting(self) -> list[Entry]:
        return [one for one in self.stream if one.owner is None]

    def pending(self, who: str | None = None) -> list[Entry]:
        """Also those without a body."""
        held = [one for one in self.stream if one.owner is not None]
        return held if who is None else [one for one in held if one.owner == who]

    def findable(self, job_id: str) -> str | None:
        """The delayed job that is found by this id."""
        job = self.index.get(job_id)
        return job if job in self.delayed else None

    def taken(self, job_id: str) -> bool:
        return job_id in self.marks and not self.marks[job_id].done

    def check_itself(self) -> None:
        """Each job that ever came in is in exactly one place."""
        places = [e.job for e in self.stream] + list(self.delayed)
        places += [one.job for one in self.dead + self.purged] + list(self.done | self.gone)
        assert sorted(places) == sorted(self.attempts), "the model itself lost or doubled a job"
        live = [e.job for e in self.stream] + list(self.delayed)
        held = [ident(job) for job in live if ident(job) in UNIQUE and job not in self.late]
        assert len(held) == len(set(held)), "the model itself let two jobs have one id"

    # -- moves ---------------------------------------------------------------------------------

    def arrive(self, job: str, attempt: int | None = None, *, hint: bool = False) -> None:
        """Into the stream, behind all others."""
        if attempt is not None:
            self.attempts[job] = attempt
        self.stream.append(Entry(self.tick(), job, hint))

    def read(self, who: str, count: int, *, lost: bool = False) -> None:
        for entry in self.waiting()[:count]:
            self.delivered = max(self.delivered, entry.number)
            entry.owner, entry.deliveries = who, 1
            if not lost:
                self.hold(who, entry, 0)

    def hold(self, who: str, entry: Entry, before: int) -> None:
        """Who holds it already goes on with what was first held: it runs there."""
        if all(held.number != entry.number for held in self.hands[who]):
            self.hands[who].append(Held(entry.number, entry.job, before, entry.hint))

    def take_over(self, who: str, entry: Entry) -> None:
        """A delivery more, and it is ours."""
        self.hold(who, entry, entry.deliveries)
        entry.owner, entry.deliveries = who, entry.deliveries + 1
        entry.silent = entry.given_back = False

    def end(self, entry: Entry) -> str:
        self.stream.remove(entry)
        return entry.job

    def lose(self, entry: Entry) -> None:
        """By a stranger's hand, and nobody has it in memory."""
        self.gone.add(self.end(entry))

    def free(self, job: str, created: int) -> None:
        """An id that was unique until this job is done is free again, if it is still this one's."""
        mark = self.marks.get(ident(job))
        if mark is not None and not mark.done and mark.created == created:
            self.marks[ident(job)] = mark._replace(done=True)

    def bury(self, job: str, *, hint: bool = False) -> None:
        self.dead.append(Dead(self.tick(), job, hint))

    def give_back(self, who: str, given: list[Held]) -> int:
        """Those without a body come last: they are written anew, from memory."""
        ours = [(held, self.owned(who, held.number)) for held in given]
        back = [(held, entry) for held, entry in ours if entry is not None]
        for held, entry in sorted(back, key=lambda one: one[1].bare):
            if entry.bare:
                attempt = self.attempts[entry.job] + held.before
                self.arrive(self.end(entry), attempt, hint=entry.hint)
            elif held.before == 0:
                self.arrive(self.end(entry), hint=entry.hint)
            else:
                entry.deliveries, entry.silent, entry.given_back = held.before, True, True
        return len(back)

    def fall_silent(self, who: str) -> list[Entry]:
        """Time passes, and nobody renewed what this one holds."""
        entries = [one for one in self.pending(who) if not one.given_back and not one.bare]
        for entry in entries:
            entry.silent = True
        return entries

    def lose_group(self) -> None:
        for entry in self.pending():
            if entry.bare:
                self.lose(entry)
        for entry in self.stream:
            entry.owner, entry.deliveries = None, 0
            entry.silent = entry.given_back = False

    def due(self, batch: int) -> list[str]:
        ready = [job for job, score in self.delayed.items() if score <= DUE]
        return sorted(ready, key=lambda job: self.delayed[job])[:batch]
