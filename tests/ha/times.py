"""How long jobs stand still when a server or a worker is lost: `make ha-times`.

For each kind of server, ROUNDS times: jobs are added and run, the server that holds them is killed,
and the clock runs until the others agree on a new one, and until a job is added and run again.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from chasquimq.server import Server
from tests.ha.crowd import Crowd
from tests.ha.deaths import DEATHS, LEASE_MS, stage_on
from tests.ha.kit import cluster, until, watched
from tests.servers import DIALECTS, Dialect, binary_for

QUEUE = "times"
KEY = f"{{chasqui:{QUEUE}}}:stream"
KINDS = [dialect for dialect in DIALECTS if dialect.forced is None]


class Stage(NamedTuple):
    url: str
    lose: Callable[[], None]
    agreed: Callable[[], object]  # answers when there is a server again


class Times(NamedTuple):
    agreed_s: float
    added_s: float
    ran_s: float


@contextmanager
def restarted(dialect: Dialect) -> Iterator[Stage]:
    with Server(binary_for(dialect), appendonly=True) as server:

        def lose() -> None:
            server.kill()
            server.start()

        yield Stage(server.url, lose, lambda: True)


@contextmanager
def under_sentinels(dialect: Dialect) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory() as folder,
        watched(binary_for(dialect), Path(folder)) as servers,
    ):
        other = servers.replica.port
        yield Stage(servers.url, servers.master.kill, lambda: servers.named() == other)


@contextmanager
def in_a_cluster(dialect: Dialect) -> Iterator[Stage]:
    with cluster(binary_for(dialect)) as nodes:
        owner = nodes.owner(KEY)
        yield Stage(nodes.url, owner.kill, lambda: nodes.owner(KEY) is not owner)


STAGES = {
    "killed and started again": restarted,
    "master killed, Sentinels": under_sentinels,
    "master killed, cluster": in_a_cluster,
}


async def measure(stage: Stage) -> Times:
    crowd = Crowd(stage.url, QUEUE)
    async with crowd.at_work(all_of_them=False):
        await crowd.goes_on()
        began = time.monotonic()
        await asyncio.to_thread(stage.lose)
        accepted, ran = len(crowd.accepted), sum(crowd.runs.values())
        found = asyncio.create_task(asyncio.to_thread(until, stage.agreed, 60.0))
        found_at: list[float] = []
        found.add_done_callback(lambda _: found_at.append(time.monotonic()))
        await crowd.until(lambda: len(crowd.accepted) > accepted)
        added = time.monotonic()
        await crowd.until(lambda: sum(crowd.runs.values()) > ran)
        done = time.monotonic()
        await found
    return Times(found_at[0] - began, added - began, done - began)


def servers_lost(rounds: int) -> list[str]:
    rows = []
    for name, stage in STAGES.items():
        for dialect in KINDS:
            times = []
            for number in range(rounds):
                _tell(name, dialect, number, rounds)
                with stage(dialect) as one:
                    times.append(asyncio.run(measure(one)))
            median = Times(*map(statistics.median, zip(*times, strict=True)))
            slowest = max(each.ran_s - each.agreed_s for each in times)
            figures = " | ".join(f"{seconds:.1f}" for seconds in (*median, slowest))
            rows.append(f"| {name} | {dialect.name} | {figures} |")
    return rows


def workers_lost(rounds: int) -> list[str]:
    rows = []
    for name, death in DEATHS.items():
        for dialect in KINDS:
            times = []
            for number in range(rounds):
                _tell(name, dialect, number, rounds)
                with stage_on(dialect) as one:
                    times.append(death(one))
            rows.append(
                f"| {name} | {dialect.name} | {statistics.median(times):.1f} | {max(times):.1f} |"
            )
    return rows


def _tell(name: str, dialect: Dialect, number: int, rounds: int) -> None:
    print(f"{name}, {dialect.name}: {number + 1} of {rounds}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds: int = parser.parse_args().rounds
    workers, servers = workers_lost(rounds), servers_lost(rounds)
    print("| what | server | agreed, s | added again, s | ran again, s | behind, at most, s |")
    print("|---|---|---:|---:|---:|---:|")
    print("\n".join(servers))
    print(f"\n| what (leases of {LEASE_MS / 1000:g} s) | server | ran again, s | at most, s |")
    print("|---|---|---:|---:|")
    print("\n".join(workers))


if __name__ == "__main__":
    main()
