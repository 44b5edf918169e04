"""Specs of every kind, and the account of what became of their windows, from what Redis holds.

A window's job is called `<key>@<ms>`, and its entry stays in the stream while no handler ends. So
the stream is the whole history: a window that is there twice was doubled, one that should be
there and is not was lost.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from chasquimq import MissedFiresPolicy, Queue, RepeatPattern, wire

EVERY_WINDOW = MissedFiresPolicy.fire_all(1_000_000)
ID = re.compile(r"([a-z]+-[0-9]+)@([0-9]{13})")


@dataclass(frozen=True)
class Kind:
    """A spec: how it repeats, and what ends it."""

    name: str
    number: int
    interval_ms: int
    missed: MissedFiresPolicy
    cron: tuple[str, str] | None = None
    limit: int | None = None
    lasts_ms: int | None = None  # until its `end_before`

    @property
    def key(self) -> str:
        return f"{self.name}-{self.number}"

    @property
    def exact(self) -> bool:
        """Whether each window must fire."""
        return self.missed.kind == "fire-all"

    @property
    def lasting(self) -> bool:
        return self.limit is None and self.lasts_ms is None and self.name != "passing"

    @property
    def pattern(self) -> RepeatPattern:
        if self.cron is not None:
            return RepeatPattern.cron(self.cron[0], tz=self.cron[1])
        return RepeatPattern.every(self.interval_ms)


def kinds(seconds: int) -> list[Kind]:
    """One of each; those that end do so after about so long."""
    skip, once = MissedFiresPolicy.skip(), MissedFiresPolicy.fire_once()
    return [
        Kind("all", 1, 100, EVERY_WINDOW),
        Kind("skip", 1, 100, skip),
        Kind("once", 1, 100, once),
        Kind("once", 2, 250, once),
        Kind("cron", 1, 1_000, EVERY_WINDOW, cron=("* * * * * *", "America/Lima")),
        Kind("limited", 1, 100, EVERY_WINDOW, limit=10 * seconds),
        Kind("limited", 2, 100, once, limit=5 * seconds),
        Kind("ending", 1, 100, EVERY_WINDOW, lasts_ms=1_000 * seconds),
    ]


@dataclass
class Line:
    """What became of the windows of some specs."""

    expected: int = 0
    fired: int = 0
    left_out: int = 0  # by a policy that may
    doubled: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Line) -> None:
        for name in ("expected", "fired", "left_out", "doubled", "lost", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def problems(self) -> list[str]:
        named = {"doubled": self.doubled, "lost": self.lost, "wrong": self.wrong}
        return [f"{what}: {one}" for what, ones in named.items() for one in ones]


class Windows:
    """The specs of one queue: written, removed, and accounted for at the end."""

    def __init__(self, url: str, queue: str, dialect: Any, client: Any) -> None:
        self.keys = wire.Keys(queue)
        self.client = client
        self._queue = Queue(queue, redis_url=url, dialect=dialect)
        self._kinds: dict[str, Kind] = {}
        self._first: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._removed: dict[str, int] = {}

    async def write(self, *some: Kind) -> None:
        """Write specs; again those that last, as every process may do when it starts."""
        async with self._queue as queue:
            for kind in some:
                if kind.lasts_ms is not None:
                    self._ends.setdefault(kind.key, self.now_ms() + kind.lasts_ms)
                await queue.upsert_repeatable_job(
                    kind.name,
                    kind.key,
                    repeat=kind.pattern,
                    key=kind.key,
                    limit=kind.limit,
                    end_before=self._ends.get(kind.key),
                    missed_fires=kind.missed,
                )
                self._kinds[kind.key] = kind
                [fire] = await queue.next_fires(kind.key, 1)
                self._first.setdefault(kind.key, round(fire.timestamp() * 1000))

    async def remove(self, kind: Kind) -> None:
        """What is in the stream afterwards was fired before."""
        async with self._queue as queue:
            assert await queue.remove_repeatable_by_key(kind.key)
        self._removed[kind.key] = self.now_ms()

    def now_ms(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def are_over(self) -> bool:
        """Whether those that end have ended."""
        ending = [kind.key for kind in self._kinds.values() if kind.limit or kind.lasts_ms]
        return not any(self.client.zmscore(self.keys.repeat, ending))

    def account(self) -> dict[str, Line]:
        """One look at everything, all at once; lines by the names of kinds."""
        look = self.client.pipeline(transaction=True)
        look.xrange(self.keys.stream)
        look.zrange(self.keys.repeat, 0, -1, withscores=True)
        look.keys(self.keys.spec("*"))
        look.xlen(self.keys.dlq)
        entries, scores, hashes, dead = look.execute()
        told: Counter[str] = Counter()
        entered: dict[str, int] = {}
        for entry, fields in entries:
            job = id_of(fields[b"d"])
            told[job] += 1
            entered[job] = int(entry.partition(b"-")[0])
        next_ms = {key.decode(): int(score) for key, score in scores}
        lines: dict[str, Line] = {}
        for kind in self._kinds.values():
            jobs = {job: told.pop(job) for job in list(told) if job.startswith(f"{kind.key}@")}
            line = self._line(kind, jobs, next_ms.get(kind.key))
            removed_ms = self._removed.get(kind.key)
            if removed_ms is not None:
                late = [job for job in jobs if entered[job] > removed_ms]
                line.wrong += [f"{job} fired after its removal" for job in late]
            lines.setdefault(kind.name, Line()).add(line)
        left = {key.removeprefix(self.keys.spec("")).decode() for key in hashes}
        wrong = [f"{key} was left behind" for key in left.symmetric_difference(next_ms)]
        wrong += [f"{job} is nobody's window" for job in told]
        wrong += [f"{dead} jobs were buried"] * bool(dead)
        lines.setdefault("all", Line()).wrong += wrong
        return lines

    def _line(self, kind: Kind, jobs: dict[str, int], next_ms: int | None) -> Line:
        key, first = kind.key, self._first[kind.key]
        wrong = [f"{job} is no id" for job in jobs if not ID.fullmatch(job)]
        at = sorted(int(job.rpartition("@")[2]) for job in jobs if ID.fullmatch(job))
        wrong += [f"{key}@{ms} is off its cadence" for ms in at if (ms - first) % kind.interval_ms]
        end = self._end(kind, at, next_ms)
        wrong += [f"{key}@{ms} is beyond its end" for ms in at if ms >= end]
        if (next_ms is None) != (key in self._removed or self._is_over(kind, len(jobs))):
            wrong.append(f"{key} is gone" if next_ms is None else f"{key} is still there")
        due = range(first, end, kind.interval_ms)
        missing = [f"{key}@{ms}" for ms in due if f"{key}@{ms}" not in jobs]
        exact = kind.exact
        return Line(
            expected=len(due) if exact else kind.limit or len(jobs),
            fired=sum(jobs.values()),
            left_out=0 if exact else len(missing),
            doubled=[job for job, times in jobs.items() if times > 1],
            lost=missing if exact else [],
            wrong=wrong,
        )

    def _end(self, kind: Kind, at: list[int], next_ms: int | None) -> int:
        """The first moment at which nothing of a spec may have fired yet."""
        if next_ms is not None:
            return next_ms
        if kind.limit is not None and kind.exact:
            return self._first[kind.key] + kind.limit * kind.interval_ms
        if kind.lasts_ms is not None:
            return self._ends[kind.key] + 1
        return max(at, default=self._first[kind.key] - kind.interval_ms) + kind.interval_ms

    def _is_over(self, kind: Kind, fired: int) -> bool:
        if kind.limit is not None:
            return fired >= kind.limit
        # An end that has come is seen when the spec is next due.
        return kind.lasts_ms is not None and self.now_ms() > self._ends[kind.key]


def id_of(body: bytes) -> str:
    return wire.unpack_envelope(body).id
