"""How long jobs stand still when a server or a worker is lost, and what is lost: `make ha-times`.

For each kind of server, ROUNDS times: jobs are added and run, every second one with a delay. The
server that holds them is killed, replaced or frozen, and the clock runs until the others agree on
a new one, and until a job is added and run there. At the end it is counted how many jobs that were
accepted never ran, and how many ran twice.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import redis

from chasquimq.server import Server
from tests.ha.crowd import Crowd
from tests.ha.deaths import DEATHS, LEASE_MS, stage_on
from tests.ha.kit import SERVICE, cluster, until, watched
from tests.ha.kit import client as client_of
from tests.servers import DIALECTS, Dialect, binary_for

QUEUE = "times"
KEY = f"{{chasqui:{QUEUE}}}:stream"
DELAYED = f"{{chasqui:{QUEUE}}}:delayed"
DELAY_MS = 200
THAW_S = 2.0  # behind the agreement
KINDS = [dialect for dialect in DIALECTS if dialect.forced is None]
DURABILITIES = ("memory", "replicated")


class Stage(NamedTuple):
    url: str
    lose: Callable[[], None]
    agreed: Callable[[], object]  # answers when there is a server again
    port: int | None  # of the server that has the queue then
    after: Callable[[], None] = lambda: None  # once jobs run again
    durabilities: tuple[str, ...] = DURABILITIES


class Times(NamedTuple):
    agreed_s: float
    added_s: float
    ran_s: float
    accepted: int
    lost: int
    twice: int


@contextmanager
def restarted(dialect: Dialect) -> Iterator[Stage]:
    with Server(binary_for(dialect), appendonly=True) as server:

        def lose() -> None:
            server.kill()
            server.start()

        port = server.port
        yield Stage(server.url, lose, lambda: True, port, durabilities=("memory",))


@contextmanager
def _sentinels(dialect: Dialect, how: str) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory() as folder,
        watched(binary_for(dialect), Path(folder)) as servers,
    ):
        other, first = servers.replica.port, servers.sentinels[0].redis

        def plan() -> None:
            until(lambda: first.sentinel_failover(SERVICE))

        def start() -> None:  # a replica again, without which nothing is replicated
            servers.master.start()

        def thaw() -> None:
            time.sleep(THAW_S)
            servers.master.resume()

        ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "killed": (servers.master.kill, start),
            "planned": (plan, lambda: None),
            "frozen": (servers.master.pause, thaw),
        }
        lose, after = ways[how]
        yield Stage(servers.url, lose, lambda: servers.named() == other, other, after)


@contextmanager
def _cluster(dialect: Dialect, how: str) -> Iterator[Stage]:
    with cluster(binary_for(dialect)) as nodes:
        owner = nodes.owner(KEY)
        heir = nodes.replica_of(owner)

        def plan() -> None:
            client_of(heir.port).execute_command("CLUSTER", "FAILOVER")

        def start() -> None:
            owner.start()

        def thaw() -> None:
            time.sleep(THAW_S)
            owner.resume()

        ways: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
            "killed": (owner.kill, start),
            "planned": (plan, lambda: None),
            "frozen": (owner.pause, thaw),
        }
        lose, after = ways[how]

        def agreed() -> bool:
            return nodes.owner(KEY, apart=owner) is heir

        yield Stage(nodes.url, lose, agreed, heir.port, after)


STAGES: dict[str, Callable[[Dialect], AbstractContextManager[Stage]]] = {
    "killed and started again": restarted,
    "master killed, Sentinels": lambda dialect: _sentinels(dialect, "killed"),
    "planned failover, Sentinels": lambda dialect: _sentinels(dialect, "planned"),
    "master frozen, then thawed, Sentinels": lambda dialect: _sentinels(dialect, "frozen"),
    "master killed, cluster": lambda dialect: _cluster(dialect, "killed"),
    "planned failover, cluster": lambda dialect: _cluster(dialect, "planned"),
    "master frozen, then thawed, cluster": lambda dialect: _cluster(dialect, "frozen"),
}


async def measure(stage: Stage, durability: str) -> Times:
    options = {} if durability == "memory" else {"durability_timeout_ms": 1_000}
    crowd = Crowd(stage.url, QUEUE, delay_ms=DELAY_MS, durability=durability, **options)
    async with crowd.at_work(all_of_them=False):
        await crowd.goes_on()
        began = time.monotonic()
        await asyncio.to_thread(stage.lose)
        found = asyncio.create_task(asyncio.to_thread(until, stage.agreed, 60.0))
        found_at: list[float] = []
        found.add_done_callback(lambda _: found_at.append(time.monotonic()))
        # By what the new one has: the old one may answer on.
        added, ran = await asyncio.to_thread(_served_again, stage)
        await found
        await asyncio.to_thread(stage.after)
        await crowd.goes_on()
        crowd.stop_adding()
        await asyncio.to_thread(until, lambda: not _left(stage), 60.0)
        await asyncio.sleep(LEASE_MS / 1000)  # what was taken twice has ended, too
    lost = set(crowd.accepted) - set(crowd.runs)
    twice = sum(runs > 1 for runs in crowd.runs.values())
    return Times(
        found_at[0] - began, added - began, ran - began, len(crowd.accepted), len(lost), twice
    )


def _served_again(stage: Stage) -> tuple[float, float]:
    """When the server that takes over got its first job, and when a worker first read there."""
    client = client_of(stage.port)
    until(lambda: client.execute_command("ROLE")[0] == b"master", 60.0)
    last = _last_ids(client)
    until(lambda: _last_ids(client)[0] != last[0], 60.0, 0.005)
    added = time.monotonic()
    until(lambda: _last_ids(client)[1] != last[1], 60.0, 0.005)
    return added, time.monotonic()


def _last_ids(client: redis.Redis) -> tuple[bytes, bytes]:
    """Of the stream, and of what was delivered."""
    [group] = client.xinfo_groups(KEY)
    return client.xinfo_stream(KEY)["last-generated-id"], group["last-delivered-id"]


def _left(stage: Stage) -> int:
    client = client_of(stage.port)
    return int(client.xlen(KEY)) + int(client.zcard(DELAYED))


def servers_lost(rounds: int) -> list[str]:
    rows = []
    for name, stage in STAGES.items():
        for dialect in KINDS:
            for durability in DURABILITIES:
                times = []
                for number in range(rounds):
                    _tell(f"{name}, {durability}", dialect, number, rounds)
                    with stage(dialect) as one:
                        if durability in one.durabilities:
                            times.append(asyncio.run(measure(one, durability)))
                if times:
                    rows.append(_row(name, dialect, durability, times))
    return rows


def _row(name: str, dialect: Dialect, durability: str, times: list[Times]) -> str:
    agreed, added, ran = (statistics.median(each[at] for each in times) for at in range(3))
    behind = max(max(each.added_s, each.ran_s) - each.agreed_s for each in times)
    figures = " | ".join(f"{seconds:.1f}" for seconds in (agreed, added, ran, behind))
    accepted, lost, twice = (sum(each[at] for each in times) for at in range(3, 6))
    return (
        f"| {name} | {dialect.name} | {durability} | {figures} | {accepted:,} | {lost} | {twice} |"
    )


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
    print(
        "| what | server | durability | agreed, s | added again, s | ran again, s "
        "| behind, at most, s | accepted | lost | ran twice |"
    )
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
    print("\n".join(servers))
    print(f"\n| what (leases of {LEASE_MS / 1000:g} s) | server | ran again, s | at most, s |")
    print("|---|---|---:|---:|")
    print("\n".join(workers))


if __name__ == "__main__":
    main()
