"""Cut a master off from its replica while jobs are added, promote the replica, and count what is
missing there: `make partitions ROUNDS=50`.

For each level of durability, ROUNDS times on each server. Of `replicated` nothing that was
confirmed may be missing. The other levels promise nothing here, and must be seen to lose: a trial
under which they lose nothing would prove nothing about the third.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from typing import NamedTuple, get_args

from chasquimq import Queue, UnconfirmedError, wire
from chasquimq.config import Durability
from tests.engine.desk import eventually
from tests.replicas import Replica, replica_of
from tests.servers import DialectServer, Servers, offer_dialects, startable

LEVELS: tuple[Durability, ...] = get_args(Durability)
ADDERS = 20
BEYOND = 40  # what is answered after the cut, one way or another, before the promotion
WAIT_MS = 400  # for a replica; those who can answer do so within a few
COLUMNS = "{:<14} {:<11} {:>6} {:>9} {:>9} {:>11} {:>18} {:>14}"


class Tally(NamedTuple):
    """What became of jobs: in the master's memory at least, promised to be safe, in doubt, and
    promised but not on the replica that took over."""

    accepted: int = 0
    confirmed: int = 0
    unconfirmed: int = 0
    lost: int = 0

    def __add__(self, other: object) -> Tally:
        assert isinstance(other, Tally)
        return Tally(*(one + two for one, two in zip(self, other, strict=True)))


class Adds:
    """Jobs that are added until somebody says stop, and what each add said."""

    def __init__(self, queue: Queue) -> None:
        self.confirmed: set[str] = set()
        self.unconfirmed: set[str] = set()
        self.accepted = 0
        self._queue = queue
        self._over = False
        self._tasks = [asyncio.ensure_future(self._add()) for _ in range(ADDERS)]

    @property
    def answered(self) -> int:
        return len(self.confirmed) + len(self.unconfirmed)

    async def _add(self) -> None:
        while not self._over:
            try:
                job = await self._queue.add("n", 1)
                self.confirmed.add(job.id)
                self.accepted += 1
            except UnconfirmedError as error:
                self.unconfirmed.add(str(error.job_id))
                self.accepted += error.accepted is True

    async def stop(self) -> None:
        """Every add that has begun is answered, too."""
        self._over = True
        await asyncio.gather(*self._tasks)


async def one_round(
    server: DialectServer, replica: Replica, level: Durability, name: str, before: int
) -> Tally:
    """`before`: how many jobs are answered when the line is cut, in the middle of more."""
    options = {"redis_url": server.url, "dialect": server.forced_dialect}
    async with Queue(name, durability=level, durability_timeout_ms=WAIT_MS, **options) as queue:
        adds = Adds(queue)
        await eventually(lambda: adds.answered >= before, 60.0)
        replica.line.cut()
        answered = adds.answered
        await eventually(lambda: adds.answered >= answered + BEYOND, 60.0)
        replica.promote()
        await adds.stop()
    rows = replica.redis.xrange(wire.Keys(name).stream)
    there = {wire.unpack_envelope(fields[b"d"]).id for _, fields in rows}
    lost = len(adds.confirmed - there)
    return Tally(adds.accepted, len(adds.confirmed), len(adds.unconfirmed), lost)


class Account(NamedTuple):
    dialect: str
    level: Durability
    rounds: int
    sum: Tally
    rounds_with_loss: int

    def problem(self) -> str | None:
        who = f"{self.dialect}, {self.level}"
        if not self.sum.confirmed:
            return f"{who}: nothing was confirmed"
        if self.level == "replicated":
            lost = self.sum.lost
            return f"{who}: {lost} confirmed jobs are lost" if lost else None
        return None if self.sum.lost else f"{who}: nothing was lost, so this shows nothing"

    def line(self) -> str:
        return COLUMNS.format(*self[:3], *self.sum, self.rounds_with_loss)


def rounds_of(
    server: DialectServer, level: Durability, rounds: int, dice: random.Random
) -> Account:
    tallies = []
    for number in range(1, rounds + 1):
        with replica_of(server) as replica:
            name = f"partition-{level}-{number}"
            told = asyncio.run(one_round(server, replica, level, name, dice.randint(20, 400)))
        tallies.append(told)
        server.client().flushall()
        print(f"{server.name}, {level}: {number} of {rounds}, {told}", file=sys.stderr)
    lossy = sum(tally.lost > 0 for tally in tallies)
    return Account(server.name, level, rounds, sum(tallies, Tally()), lossy)


def table(accounts: list[Account]) -> list[str]:
    head = ("", "durability", "rounds", "accepted", "confirmed", "unconfirmed")
    return [
        COLUMNS.format(*head, "confirmed but lost", "in so many"),
        *(account.line() for account in accounts),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="of each level on each server")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the cuts")
    offer_dialects(parser)
    options = parser.parse_args()
    dialects, problems = startable(options.on)
    accounts = []
    for dialect in dialects:
        for level in LEVELS:
            dice = random.Random(f"{options.seed} {dialect.name} {level}")
            with Servers().private(dialect) as server:
                accounts.append(rounds_of(server, level, options.rounds, dice))
    problems += [problem for one in accounts if (problem := one.problem())]
    print("", *table(accounts), "", sep="\n")
    print("\n".join(problems) or "of what replicas had confirmed, nothing is lost")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
