"""What a crew tells the world: metrics of all its processes, whether it lives, whether it is ready.

Asked from the threads of the endpoint, so it only reads. Counters of processes that have ended
are kept and added, so that no counter ever goes back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable
from typing import Any

import msgspec

from chasquimq.cli.crew.member import Member
from chasquimq.cli.crew.supervisor import Slot, Supervisor
from chasquimq.observe.endpoint import Report
from chasquimq.observe.record import Snapshot, Totals, counted, merged

log = logging.getLogger("chasquimq.cli")

STUCK_S = 10.0  # a supervisor whose loop has not turned for so long is not alive
FRESH_S = 10.0  # how full a queue was longer ago is not told
SILENT_S = 5.0  # a process that has not answered for so long is not ready


class Reports:
    def __init__(self, supervisor: Supervisor) -> None:
        self._crew = supervisor
        self._totals = Totals()
        # What the dead counted, and which of them are still listed.
        self._past, self._dead = Snapshot({}, []), frozenset[Member]()
        supervisor.ended_member = self.keep
        supervisor.each_second = self.collect

    def keep(self, member: Member) -> None:
        """A process has ended: its counters stay."""
        last = _snapshots(member)

        def look() -> list[tuple[Hashable, Snapshot]]:
            self._past = merged([self._past, *(counted(one) for _, one in last)])
            for tally in self._past.queues.values():
                tally.names.clear()  # which the totals have
            self._dead = self._dead.intersection(self._crew.members) | {member}
            return last

        self._totals.add(look)
        for key, _ in last:
            self._totals.forget(key)

    def collect(self) -> None:
        """Note what each process has counted, before it ends the rows of names that it uses no
        longer."""
        try:
            self._totals.add(self._look)
        except Exception:  # a process of another version; metrics must not end the supervisor
            log.debug("cannot read what the processes have counted", exc_info=True)

    def metrics(self, accept: str) -> tuple[str, bytes]:
        from chasquimq.observe.prometheus import exposition

        whole = self._totals.page(self._look)
        living = [one for one in self._crew.members if one not in self._dead]
        recent = time.monotonic() - FRESH_S
        latest = max(living, key=lambda one: one.measured_at, default=None)
        full = latest.depths if latest is not None and latest.measured_at > recent else ()
        return exposition(whole, full, accept)

    def live(self) -> Report:
        """The loop turns, not every process is hopeless, and none is stalled without having been
        told to stop."""
        silent_s = time.monotonic() - self._crew.beat_at
        hopeless = [slot for slot in self._crew.slots if slot.backoff.hopeless]
        problems = []
        if silent_s > STUCK_S:
            problems.append(f"the supervisor has been stuck for {silent_s:.0f} s")
        if len(hopeless) == len(self._crew.slots):
            problems.append("every process crashes again and again")
        problems += [
            f"process {member.index + 1} is stalled: {member.stalled}"
            for member in list(self._crew.members)
            if member.stalled is not None and not member.told_to_stop
        ]
        details: dict[str, Any] = {"restarts": self._crew.total.crashes}
        return Report(not problems, {**details, **({"problems": problems} if problems else {})})

    def ready(self) -> Report:
        """Every process answers, and every Worker in it is well."""
        processes = [_process(slot) for slot in self._crew.slots]
        problems = [
            f"process {one['process']}: {problem}"
            for one in processes
            for problem in one.pop("problems")
        ]
        if self._crew.is_stopping:
            problems.insert(0, "it is draining")
        return Report(not problems, {"problems": problems, "processes": processes})

    def _look(self) -> list[tuple[Hashable, Snapshot]]:
        living = [one for one in self._crew.members if one not in self._dead]
        return [(None, self._past), *(row for one in living for row in _snapshots(one))]


def _process(slot: Slot) -> dict[str, Any]:
    """How one slot is; its `problems` are sentences."""
    found: dict[str, Any] = {"process": slot.index + 1, "problems": []}
    member = slot.member
    if slot.finished:
        return found
    if member is None or slot.waiting is not None:
        found["problems"].append(slot.waiting or "it has not been started")
        return found
    found["pid"] = member.pid
    state = member.state
    if member.ready_at is None or state is None:
        found["problems"].append("it is starting")
        return found
    silent_s = time.monotonic() - member.stated_at
    if silent_s > SILENT_S:
        found["problems"].append(f"it has not answered for {silent_s:.1f} s: is its loop blocked?")
    several = len(state.posts) > 1
    for post in state.posts:
        who = f"the Worker of {post.queue}: " if several else ""
        found["problems"] += [f"{who}{problem}" for problem in post.problems]
    found |= {"jobs": state.jobs, "failed": state.failed, "rss_bytes": state.rss}
    found["workers"] = [{"queue": post.queue, **post.health} for post in state.posts]
    return found


def _snapshots(member: Member) -> list[tuple[Hashable, Snapshot]]:
    """What each Worker of a process has counted, by a key that lasts as long as it does."""
    if member.state is None:
        return []
    silent_s = time.monotonic() - member.stated_at
    return [
        ((member, number), _aged(msgspec.convert(one, Snapshot), silent_s))
        for number, one in enumerate(member.state.metrics)
    ]


def _aged(snapshot: Snapshot, seconds: float) -> Snapshot:
    """What it says of its Workers has become older by so much on its way to us."""
    workers = [msgspec.structs.replace(one, age_s=one.age_s + seconds) for one in snapshot.workers]
    return Snapshot(snapshot.queues, workers)
