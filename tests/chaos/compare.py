"""The same faults under our workers, the reference's and careless ones, side by side.

`python -m tests.chaos.compare` prints a Markdown table of what each lost, ran twice, ran twice at
once and left undone. Jobs, handlers, leases and moments are the same for all; our Queue adds them.
The exit code is 1 if ours is not faultless, or if a careless worker passes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.chaos.kit.fleet import OUR_WORKER, WEAK_WORKER, Fleet, Orders, Process
from tests.chaos.kit.handler import Behaviour
from tests.chaos.kit.history import Verdict
from tests.chaos.kit.ledger import Ledger, open_runs, tally
from tests.chaos.kit.stage import CONCURRENCY, LEASE_MS, Stage
from tests.chaos.kit.wait import eventually
from tests.servers import DIALECTS, Servers
from tools.reference_env import interpreter

LEASE_S = LEASE_MS / 1000
QUIET_S = 25.0  # without anything new for so long, what is left is stuck


@dataclass(frozen=True)
class Subject:
    name: str
    module: str = OUR_WORKER
    weakness: tuple[str, ...] = ()
    reference: bool = False


SUBJECTS = (
    Subject("ours"),
    Subject("reference 1.3.0", reference=True),
    Subject("careless: acks first", WEAK_WORKER, ("ack_first",)),
    Subject("careless: no lease", WEAK_WORKER, ("no_lease",)),
    Subject("careless: trims", WEAK_WORKER, ("trim",)),
)


class Trial:
    """One subject on one stage."""

    def __init__(self, stage: Stage, subject: Subject) -> None:
        self.stage = stage
        self._subject = subject

    def start(self, count: int, behaviour: Behaviour, **more: int) -> list[Process]:
        orders: Orders = replace(
            self.stage.orders(behaviour), weakness=self._subject.weakness, **more
        )
        python = str(interpreter()) if self._subject.reference else None
        module = self._subject.module
        return self.stage.fleet.start_many([orders] * count, module=module, python=python)

    def add(self, jobs: int) -> None:
        asyncio.run(self.stage.add(range(jobs)))

    def rests(self) -> None:
        """Wait until all is done, or nothing has happened for long."""
        known: list[int] = []

        def over() -> bool:
            known.append(tally(self.stage.ledger.path)["end"])
            asleep = len(known) > 10 * QUIET_S and known[-1] == known[-int(10 * QUIET_S)]
            return self._is_done() or asleep

        eventually(over, 120.0, every=0.1)

    def _is_done(self) -> bool:
        alive = self.stage.fleet.alive
        idle = not any(open_runs(self.stage.ledger.path, one.pid) for one in alive)
        return idle and self.stage.is_drained()


def kill9_mid_handler(trial: Trial) -> None:
    trial.add(800)
    for _ in range(2):
        [one] = trial.start(1, Behaviour(sleep_ms=5))
        trial.stage.fleet.kill_at_work(one)
    trial.start(2, Behaviour(sleep_ms=5))


def slow_handler(trial: Trial) -> None:
    trial.add(2 * CONCURRENCY)
    trial.start(2, Behaviour(sleep_ms=4 * LEASE_MS))


def server_away_past_the_lease(trial: Trial) -> None:
    trial.add(2 * CONCURRENCY)
    crew = trial.start(2, Behaviour(sleep_ms=4 * LEASE_MS))
    ledger = trial.stage.ledger.path
    eventually(lambda: sum(open_runs(ledger, one.pid) for one in crew) >= CONCURRENCY)
    asyncio.run(asyncio.sleep(0.5 * LEASE_S))
    trial.stage.server.server.kill()
    asyncio.run(asyncio.sleep(1.5 * LEASE_S))
    trial.stage.server.server.start()


def server_kill9_under_load(trial: Trial) -> None:
    trial.add(1_500)
    trial.start(2, Behaviour(sleep_ms=5, fail_every=40))
    for at_least in (200, 600):
        if not _comes_to(trial, at_least):
            return
        trial.stage.server.server.kill()
        asyncio.run(asyncio.sleep(0.3))
        trial.stage.server.server.start()


def poison_with_innocents(trial: Trial) -> None:
    trial.add(50)
    behaviour = Behaviour(sleep_ms=20, exit_on=1, times=0)
    for _ in range(8):
        [one] = trial.start(1, behaviour, max_attempts=3)
        _until(lambda one=one: not one.is_alive or trial.stage.is_drained(), 6.0)  # type: ignore[misc]
        trial.stage.fleet.bury_the_dead()
        if trial.stage.is_drained():
            return


def _comes_to(trial: Trial, at_least: int) -> bool:
    return _until(lambda: trial.stage.ended() >= at_least, QUIET_S)


def _until(ask: Callable[[], bool], timeout: float) -> bool:
    try:
        return eventually(ask, timeout, every=0.05)
    except AssertionError:
        return False


SCENARIOS: dict[str, Callable[[Trial], None]] = {
    "kill9_mid_handler": kill9_mid_handler,
    "slow_handler": slow_handler,
    "redis_down_longer_than_lease": server_away_past_the_lease,
    "redis_kill9_restart": server_kill9_under_load,
    "poison_with_innocents": poison_with_innocents,
}


@dataclass(frozen=True)
class Figures:
    scenario: str
    subject: str
    accepted: int
    lost: int
    duplicated: int
    uncharged: int
    overlapping: int
    stuck: int
    buried: int

    @classmethod
    def of(cls, scenario: str, subject: str, verdict: Verdict) -> Figures:
        seen = verdict.scan
        left = {*seen.unread, *seen.pending, *seen.delayed, *seen.stranded}
        innocent = [job for job in seen.dead if job != "job-1"]
        return cls(
            scenario,
            subject,
            len(verdict.accepted),
            len(verdict.lost),
            len(verdict.duplicated),
            len(verdict.uncharged),
            len(verdict.overlaps),
            len(left & verdict.accepted),
            len(innocent),
        )

    @property
    def faultless(self) -> bool:
        return not (self.lost or self.overlapping or self.stuck or self.buried)

    @property
    def line(self) -> str:
        shown = (self.accepted, self.lost, self.duplicated, self.overlapping, self.stuck)
        cells = " | ".join(map(str, (*shown, self.buried)))
        return f"| `{self.scenario}` | {self.subject} | {cells} |"


HEAD = (
    "| scenario | workers | jobs | lost | run twice | overlapping | stuck | innocents buried |",
    "|---|---|--:|--:|--:|--:|--:|--:|",
)


@contextmanager
def stage_of(name: str, folder: Path) -> Iterator[Stage]:
    ledger = Ledger(folder / "ledger")
    with Servers().private(DIALECTS[0]) as server, Fleet(ledger) as fleet:
        yield Stage(server, name, ledger, fleet)
    ledger.close()


def one(scenario: str, subject: Subject) -> Figures:
    with tempfile.TemporaryDirectory() as folder, stage_of(scenario, Path(folder)) as stage:
        trial = Trial(stage, subject)
        SCENARIOS[scenario](trial)
        trial.rests()
        return Figures.of(scenario, subject.name, stage.verdict())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for scenario in options.only:
        for subject in SUBJECTS:
            found.append(one(scenario, subject))
            print(found[-1].line, file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps([vars(figures) for figures in found], indent=1))
    else:
        print("", *HEAD, *(figures.line for figures in found), sep="\n")
    return bool(problems(found))


def problems(found: list[Figures]) -> list[str]:
    """Ours must be faultless, and each careless worker must be caught by a scenario."""
    wrong = [row.line for row in found if row.subject == "ours" and not row.faultless]
    careless = {row.subject for row in found if row.subject.startswith("careless")}
    caught = {row.subject for row in found if not row.faultless}
    wrong += [f"{subject} was not caught" for subject in sorted(careless - caught)]
    for line in wrong:
        print(line, file=sys.stderr)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
