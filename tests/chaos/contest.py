"""The scenarios that our workers and others are put under, side by side, by `compare.py`.

Each adds jobs by our Queue, starts workers and breaks something; the moments are told by the ledger
and by what goes over the line, so that they are the same for everybody. A bare worker is left out
where it would need what it does not have: promotion, retries, burials, a stop on SIGTERM.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from chasquimq import MissedFiresPolicy, Queue, RepeatPattern
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.proxy import Proxy
from tests.chaos.kit.stage import CONCURRENCY, LEASE_MS
from tests.chaos.kit.trial import (
    ACKS_FIRST,
    CARELESS,
    FRUGAL,
    NO_LEASE,
    OURS,
    PATIENT,
    QUIET_S,
    REFERENCE,
    TRIMS,
    Subject,
    Trial,
    until,
)
from tests.chaos.kit.wait import eventually

LEASE_S = LEASE_MS / 1000
LONGER_MS = 5 * LEASE_MS  # where it is not about leases, and every answer may be late
LOCK_S = 5.0  # how long who schedules may be silent: the default of both, and the reference's only
NEVER = 1_000


@dataclass(frozen=True)
class Contest:
    """A scenario, the invariants it checks, and who takes part."""

    name: str
    invariants: tuple[int, ...]
    play: Callable[[Trial], None]
    bare: bool = False
    """Whether the careless take part;"""
    catches: tuple[Subject, ...] = ()
    """... those of them that must not pass."""
    better: tuple[Subject, ...] = ()
    """The reference with settings that help it here."""
    max_attempts: int = 25
    doomed: frozenset[str] = frozenset()
    """Jobs that shall be dead in the end, and no others."""
    planted: int = 0
    """What the scenario leaves on the server that is no job."""

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return (OURS, REFERENCE, *self.better, *(CARELESS if self.bare else ()))


# -- workers -----------------------------------------------------------------------------------


def kill9_mid_handler(trial: Trial) -> None:
    trial.add(800)
    for _ in range(2):
        [one] = trial.start(1, Behaviour(sleep_ms=5))
        trial.stage.fleet.kill_at_work(one)
    trial.start(2, Behaviour(sleep_ms=5))


def kill9_between_handler_and_ack(trial: Trial) -> None:
    trial.add(40)
    behaviour = Behaviour(kill_on=7)
    [one] = trial.start(1, behaviour)
    eventually(lambda: not one.is_alive)
    trial.stage.fleet.bury_the_dead()
    trial.start(1, behaviour)


FAILING, BURIED = 3, 10  # of so many jobs one fails first, or for good
KILLS = (20, 50, 80, 110)


def kill9_among_retries_and_burials(trial: Trial) -> None:
    """Jobs are delayed, retried and buried, and whoever does so is killed meanwhile."""
    trial.add(150)
    trial.add(150, first=150, delay_ms=1_000)
    behaviour = Behaviour(sleep_ms=20, fail_every=BURIED, fails=NEVER)
    for at_least in KILLS:
        [one] = trial.start(1, behaviour)
        trial.comes_to(at_least)
        trial.stage.fleet.kill_at_work(one)
    trial.start(2, behaviour)


def sigstop_past_the_lease(trial: Trial) -> None:
    """It wakes up when another runs its jobs, and each of its own runs fails. All of them are
    shorter than a lease: nobody would lose one but for the stop."""
    trial.add(CONCURRENCY)
    behaviour = Behaviour(sleep_ms=0.5 * LEASE_MS, fail_every=1)
    [stopped] = trial.start(1, behaviour)
    trial.works(CONCURRENCY, stopped)
    stopped.pause()
    trial.stage.ledger.frozen(stopped.pid)
    [heir] = trial.start(1, behaviour)
    trial.works(1, heir)
    stopped.resume()
    trial.stage.ledger.thawed(stopped.pid)


SLOW = Behaviour(sleep_ms=4 * LEASE_MS)
FEW = 3 * CONCURRENCY // 2  # so that one of two workers has places left, and would take over


def slow_handler(trial: Trial) -> None:
    trial.add(FEW)
    trial.start(2, SLOW)


def poison_with_innocents(trial: Trial) -> None:
    trial.add(50)
    behaviour = Behaviour(sleep_ms=20, exit_on=1, times=0)
    for _ in range(8):
        [one] = trial.start(1, behaviour)
        until(lambda one=one: not one.is_alive or trial.stage.is_drained(), 6.0)  # type: ignore[misc]
        trial.stage.fleet.bury_the_dead()
        if trial.stage.is_drained():
            return


def sigterm_under_load(trial: Trial) -> None:
    """It is not noted as a death: what was not done must have been given back or wait."""
    trial.add(1_500)
    behaviour = Behaviour(sleep_ms=4, slow_every=40, slow_ms=800)
    for at_least in (100, 300, 500):
        [one] = trial.start(1, behaviour, claim_min_idle_ms=LONGER_MS)
        eventually(lambda least=at_least: trial.stage.ended() > least)  # type: ignore[misc]
        one.terminate()
    trial.start(1, behaviour, claim_min_idle_ms=LONGER_MS)


# -- the server --------------------------------------------------------------------------------


def server_killed_under_load(trial: Trial) -> None:
    trial.add(1_500)
    trial.start(2, Behaviour(sleep_ms=5, fail_every=40))
    for at_least in (200, 600):
        if trial.comes_to(at_least):
            _away(trial, 0.3)


def server_away_past_the_lease(trial: Trial) -> None:
    trial.add(FEW)
    trial.works(CONCURRENCY, *trial.start(2, SLOW))
    time.sleep(0.5 * LEASE_S)
    _away(trial, 1.5 * LEASE_S)


def _away(trial: Trial, seconds: float) -> None:
    trial.stage.server.server.kill()
    time.sleep(seconds)
    trial.stage.server.server.start()


def memory_is_full(trial: Trial) -> None:
    _for_a_moment(trial, ("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"))


def server_is_a_replica(trial: Trial) -> None:
    """As when somebody fails over by hand, and thinks better of it."""
    _for_a_moment(trial, ("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"))


def _for_a_moment(trial: Trial, breaks: tuple[str, ...], mends: tuple[str, ...]) -> None:
    trial.add(300)
    trial.start(2, Behaviour(sleep_ms=20, fail_every=FAILING))
    trial.tried(trial.comes_to(60))
    trial.stage.redis.execute_command(*breaks)
    time.sleep(1.5)
    trial.stage.redis.execute_command(*mends)


def group_is_destroyed(trial: Trial) -> None:
    """While nothing is pending; more jobs come afterwards."""
    trial.add(50)
    trial.start(2, Behaviour())
    trial.tried(trial.comes_to(50))
    eventually(trial.stage.is_drained)
    trial.tried(trial.stage.redis.xgroup_destroy(trial.stage.keys.stream, "default"))
    trial.add(50, first=50)


# -- the network -------------------------------------------------------------------------------


MANY = 1_500


@contextmanager
def _behind_a_proxy(trial: Trial) -> Iterator[Proxy]:
    """Two workers, and jobs of which some fail first; it ends when they rest."""
    trial.add(MANY)
    with trial.stage.proxy() as proxy:
        behaviour = Behaviour(sleep_ms=20, fail_every=FAILING)
        trial.start(2, behaviour, url=proxy.url, claim_min_idle_ms=LONGER_MS)
        trial.tried(trial.comes_to(MANY // 20))
        yield proxy
        proxy.heal()
        trial.rests()


def _are_nearly_done(trial: Trial) -> bool:
    return trial.stage.ended() >= 0.9 * MANY


def resets_in_a_row(trial: Trial) -> None:
    with _behind_a_proxy(trial) as proxy:

        def reset() -> bool:
            proxy.reset()
            return _are_nearly_done(trial)

        until(reset, QUIET_S, every=0.1)
        trial.tried(proxy.resets)


def replies_are_cut(trial: Trial) -> None:
    """The server did what it was told, and nobody hears of it: every fiftieth answer."""
    with _behind_a_proxy(trial) as proxy:
        cut = proxy.cut(50, every=True)
        until(lambda: _are_nearly_done(trial), QUIET_S)
        trial.tried(cut.done)


# -- what lies on the server -------------------------------------------------------------------


def poison_in_the_delayed_set(trial: Trial) -> None:
    trial.stage.redis.zadd(trial.stage.keys.delayed, {b"\x01": 1})
    trial.add(20, delay_ms=300)
    trial.start(2, Behaviour())


def events_are_refused(trial: Trial) -> None:
    trial.stage.redis.set(trial.stage.keys.events, "no stream")
    trial.add(200)
    trial.start(2, Behaviour(sleep_ms=5, fail_every=FAILING))


# -- schedules ---------------------------------------------------------------------------------


def fire_that_comes_too_late(trial: Trial) -> None:
    """Of two that schedule the one that leads is cut off while it fires. The other one takes over
    when the lock has run out; what was on its way arrives after that."""
    with trial.stage.proxy() as proxy:
        trial.start(2, Behaviour(by_data=True), url=proxy.url, claim_min_idle_ms=LONGER_MS)
        eventually(lambda: trial.stage.redis.exists(trial.stage.keys.scheduler_lock))
        fire = proxy.hold(b":repeat:spec:", trial.stage.keys.stream, times=1)
        asyncio.run(_specs(trial, 20))
        trial.tried(until(lambda: fire.seen > 0, 10.0))
        time.sleep(LOCK_S + 2.0)
        until(lambda: trial.stage.ended() >= 20, LOCK_S)
        proxy.heal()
        time.sleep(2.0)
        trial.rests()


async def _specs(trial: Trial, count: int) -> None:
    """Each has one window."""
    stage = trial.stage
    async with Queue(stage.queue, redis_url=stage.server.url) as queue:
        for number in range(count):
            stage.ledger.accepted(f"job-{number}")
            await queue.upsert_repeatable_job(
                "c",
                number,
                repeat=RepeatPattern.every(2_000),
                key=f"spec-{number}",
                limit=1,
                missed_fires=MissedFiresPolicy.fire_once(),
            )


CONTESTS = (
    Contest(
        "kill9_mid_handler",
        (1, 2, 3, 4, 5, 6),
        kill9_mid_handler,
        bare=True,
        catches=(ACKS_FIRST, TRIMS),
    ),
    Contest("kill9_between_handler_and_ack", (1, 2, 3, 4, 5, 6), kill9_between_handler_and_ack),
    Contest(
        "kill9_among_retries_and_burials",
        (1, 2, 3, 4, 5, 6),
        kill9_among_retries_and_burials,
        max_attempts=7,
        doomed=frozenset(f"job-{number}" for number in range(0, 300, BURIED)),
    ),
    Contest("sigstop_worker_past_lease", (1, 2, 4, 5, 6), sigstop_past_the_lease),
    Contest(
        "slow_handler",
        (1, 2, 3, 4, 5, 6),
        slow_handler,
        bare=True,
        catches=(NO_LEASE,),
        better=(PATIENT,),
    ),
    Contest(
        "poison_with_innocents",
        (1, 2, 3, 5, 6),
        poison_with_innocents,
        bare=True,
        catches=(ACKS_FIRST,),
        better=(FRUGAL,),
        max_attempts=3,
        doomed=frozenset({"job-1"}),
    ),
    Contest("sigterm_under_load", (1, 2, 3, 4, 6), sigterm_under_load),
    Contest(
        "redis_kill9_restart",
        (1, 2, 4, 5, 6),
        server_killed_under_load,
    ),
    Contest(
        "redis_down_longer_than_lease",
        (1, 2, 3, 4, 6),
        server_away_past_the_lease,
        bare=True,
        catches=(NO_LEASE,),
        better=(PATIENT,),
    ),
    Contest("oom_drain_recovers", (1, 2, 3, 4, 6), memory_is_full),
    Contest("readonly_flip", (1, 2, 3, 4, 6), server_is_a_replica),
    Contest("group_destroyed", (1, 2, 3, 4, 6), group_is_destroyed),
    Contest("rst_storm", (1, 2, 3, 4, 6), resets_in_a_row),
    Contest("reply_cut_every_command", (1, 2, 3, 4, 6), replies_are_cut),
    Contest("poison_zset_member", (1, 2, 3, 6), poison_in_the_delayed_set, planted=1),
    Contest("events_refused", (1, 2, 3, 4, 6), events_are_refused),
    Contest("two_leaders_forced", (1, 8), fire_that_comes_too_late),
)
