"""How a worker is, as a value: what lives, what answers, since when. Pure.

A worker is healthy while every part of it lives, Redis answers, it reads and its event loop is
not blocked. A busy one that does not read, because it has its hands full, is healthy too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

State = Literal["new", "starting", "running", "stopping", "stopped", "failed"]

PATIENCE_S = 3.0  # an answer that is later than it should be by so much is a problem
STALLED_S = 30.0  # after so long, functions that were given up are not expected to end
IN_A_ROW = 3  # refused rounds, before they are a problem
PULSE_S = 1.0  # between two times that a worker tells its metrics sinks how it is


class Connection(msgspec.Struct, frozen=True):
    """`silent_s` is how long its oldest question has been unanswered, beyond what it may wait;
    `trouble` is why the last try to reconnect failed."""

    up: bool
    reconnects: int = 0
    silent_s: float = 0.0
    trouble: str = ""


class Failing(msgspec.Struct, frozen=True):
    """Rounds of a loop that Redis refused, one after another; `why` is what it said to the last."""

    times: int
    why: str


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """Since the worker started."""

    read: int = 0  # deliveries
    came_too_late: int = 0  # outcomes of jobs that somebody else had settled
    events_dropped: int = 0
    own_ids_refused: int = 0  # deliveries of what we were running
    leases_lost: int = 0
    given_back: int = 0
    groups_recreated: int = 0


class Health(msgspec.Struct, frozen=True, kw_only=True):
    state: State = "new"
    problems: tuple[str, ...] = ()
    tasks: Mapping[str, str] = {}  # name -> "running", "ended", "failed: ..."
    connections: Mapping[str, Connection] = {}
    last_read_s: float | None = None  # since a read was last answered; None: never
    reading_s: float | None = None  # since it began to ask for jobs; None: it does not want any
    reading_limit_s: float = 0.0  # by when an answer must have come
    renewal_gap_s: float | None = None  # since our leases were last renewed
    lease_s: float = 0.0
    leads: bool = False  # this worker promotes delayed jobs for the queue
    schedules: bool = False  # this worker fires specs for the queue
    paused: bool = False  # the queue is paused: it starts nothing new
    slots: int = 0  # that live; as many as `concurrency`
    slots_limit: int = 0
    slots_kept: int = 0  # by handlers that were given up and have not ended
    slots_full_s: float = 0.0  # for how long all of them have been
    running: int = 0  # handlers
    queued: int = 0  # read ahead, not started
    held: int = 0  # all that is pending under our name, as far as we know
    suspects: int = 0  # jobs of workers that died, which nobody has taken up yet
    suspect_wait_s: float = 0.0  # for how long the oldest of them has waited
    refused_moves: int = 0  # jobs that have run, and that Redis refuses to settle
    refusing: str | None = None  # what Redis says while it takes nothing that this worker writes
    overdue: str | None = None  # why running jobs were stopped and nothing is read
    failing: Mapping[str, Failing] = {}  # loops whose last round was refused, by name
    threads_busy: int = 0  # plain functions, also those that were given up and still run
    threads_stuck: int = 0  # the latter
    threads_limit: int = 0
    threads_full_s: float = 0.0  # for how long all of them have been kept by such functions
    loop_lag_s: float = 0.0  # for how long the event loop was blocked lately, at the worst
    stalled: str | None = None  # why only a new process can help, None otherwise
    counters: Counters = Counters()

    @property
    def healthy(self) -> bool:
        return self.state in ("running", "stopping") and not self.problems

    def to_dict(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **msgspec.to_builtins(self)}


def examined(health: Health) -> Health:
    """The same, with its problems in words for an operator."""
    if health.state not in ("running", "stopping"):
        return health
    return msgspec.structs.replace(health, problems=_problems(health), stalled=_stalled(health))


def _stalled(health: Health) -> str | None:
    """Why a worker cannot do all its work any more, and will not by itself."""
    if health.state != "running":
        return None
    for name, state in health.tasks.items():
        if state != "running":
            return f"{name} has {state}, and nothing in this process begins it again"
    if health.slots_limit and not health.slots:
        return f"all {health.slots_limit} slots have ended: nothing is started"
    if health.slots_full_s > STALLED_S:
        return (
            f"all {health.slots_limit} slots have been kept for {health.slots_full_s:.0f} s by "
            "handlers that were given up and have not ended: nothing is started"
        )
    if health.threads_full_s > STALLED_S:
        return (
            f"all {health.threads_limit} threads have been kept for {health.threads_full_s:.0f} s "
            "by functions that were given up and have not ended: nothing is started"
        )
    return None


def _problems(health: Health) -> tuple[str, ...]:
    problems = [
        f"{name} has {state}"
        for name, state in health.tasks.items()
        if state != "running" and health.state == "running"
    ]
    for name, connection in health.connections.items():
        if not connection.up:
            why = connection.trouble and f": {connection.trouble}"
            problems.append(f"the connection of {name} is down{why}")
        elif connection.silent_s > PATIENCE_S:
            problems.append(f"Redis has not answered {name} for {connection.silent_s:.1f} s")
    if health.refusing is not None:
        problems.append(
            f"Redis refuses what this worker writes: {health.refusing}; "
            "it reads nothing until that is mended"
        )
    if health.overdue is not None:
        problems.append(
            f"{health.overdue}: what ran was stopped, and nothing is read until a renewal succeeds"
        )
    if health.refused_moves:
        problems.append(
            f"Redis refuses to settle {health.refused_moves} jobs that have run: repair the keys "
            "or the rights that the log names"
        )
    problems += [
        f"the {name} has failed {rounds.times} times in a row: {rounds.why}"
        for name, rounds in health.failing.items()
        if rounds.times >= IN_A_ROW
    ]
    reading_s = None if health.paused else health.reading_s
    if reading_s is not None and reading_s > health.reading_limit_s:
        problems.append(f"the reader has got no answer for {reading_s:.1f} s, though it has room")
    if health.loop_lag_s > PATIENCE_S:
        problems.append(
            f"the event loop was blocked for {health.loop_lag_s:.1f} s: is a handler blocking it?"
        )
    if health.threads_stuck and health.threads_stuck >= health.threads_limit:
        problems.append(
            f"all {health.threads_limit} threads are kept by functions that were given up and "
            "have not ended: nothing is started"
        )
    if health.slots_kept and health.slots_kept >= health.slots_limit:
        problems.append(
            f"all {health.slots_limit} slots are kept by handlers that were given up and have not "
            "ended: nothing is started; does a handler swallow its cancellation?"
        )
    if health.state == "running" and health.slots < health.slots_limit:
        problems.append(
            f"{health.slots_limit - health.slots} of {health.slots_limit} slots have ended and "
            "were not replaced; report it as a defect, and restart the worker"
        )
    if health.lease_s and health.suspect_wait_s > 2 * health.lease_s:
        problems.append(
            f"{health.suspects} jobs of workers that died wait to be taken up, the oldest for "
            f"{health.suspect_wait_s:.1f} s: all slots are busy, or a job that may have ended its "
            "worker runs alone"
        )
    gap = health.renewal_gap_s
    if gap is not None and health.lease_s and gap > health.lease_s:
        problems.append(f"leases were last renewed {gap:.1f} s ago, and last {health.lease_s:g} s")
    return tuple(problems)
