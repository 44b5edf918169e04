"""What durable adds cost beside plain ones, as ratios within each round.

    .venv/bin/python bench/durability.py          # about a minute; prints a page for bench/reports/

A server without a disk and one for each `appendfsync`, and a replica of the first; all on this
machine. In each round every kind of add runs once, one after another and 1,000 at once.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from statistics import median
from typing import NamedTuple

import redis
from scenarios import PAYLOAD

from chasquimq import Queue
from chasquimq.config import Durability
from chasquimq.server import Server, find_server

AT_ONCE = 1_000


class Kind(NamedTuple):
    name: str
    server: str
    durability: Durability
    singles: int


KINDS = [
    Kind("memory, no append-only file, a replica", "none", "memory", 300),
    Kind("memory, appendfsync everysec", "everysec", "memory", 300),
    Kind("memory, appendfsync always", "always", "memory", 300),
    Kind("replicated, one replica", "none", "replicated", 300),
    Kind("local, appendfsync always", "always", "local", 300),
    Kind("local, appendfsync everysec", "everysec", "local", 3),
]


class Figures(NamedTuple):
    single_ms: float  # per add, one after another
    thousand_ms: float  # for all of them
    waits: int  # for the thousand


async def measure(kind: Kind, servers: Mapping[str, Server]) -> Figures:
    url = servers[kind.server].url
    with redis.Redis.from_url(url) as client:
        client.flushall()
        async with Queue("bench", redis_url=url, durability=kind.durability) as queue:
            for _ in range(3):
                await queue.add("warm", PAYLOAD)
            began = time.perf_counter()
            for _ in range(kind.singles):
                await queue.add("n", PAYLOAD)
            between, before = time.perf_counter(), waits(client)
            async with asyncio.TaskGroup() as group:
                for _ in range(AT_ONCE):
                    group.create_task(queue.add("n", PAYLOAD))
            ended = time.perf_counter()
        added = client.xlen("{chasqui:bench}:stream")
        assert added == 3 + kind.singles + AT_ONCE, added
        single_ms = (between - began) * 1000 / kind.singles
        return Figures(single_ms, (ended - between) * 1000, waits(client) - before)


def waits(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("wait", "waitaof"))


@contextmanager
def servers() -> Iterator[dict[str, Server]]:
    binary = find_server(kind="redis", at_least=(8, 6, 2))
    with ExitStack() as stack:
        quick = {"repl-diskless-sync-delay": 0}
        running = {"none": stack.enter_context(Server(binary, config=quick))}
        for policy in ("everysec", "always"):
            server = Server(binary, appendonly=True, config={"appendfsync": policy})
            running[policy] = stack.enter_context(server)
        source = {"replicaof": ("127.0.0.1", str(running["none"].port))}
        stack.enter_context(Server(binary, config=source))
        with redis.Redis.from_url(running["none"].url) as client:
            while client.info("replication").get("slave0", {}).get("state") != "online":
                time.sleep(0.05)
        yield running


def page(rounds: list[list[Figures]], version: str) -> list[str]:
    """`rounds[n][k]`: kind k in round n."""
    lines = [
        f"# {datetime.now(UTC):%Y-%m-%d}-durability",
        "",
        f"Median of {len(rounds)} rounds. A ratio is to the first row of the same round, and is",
        "what counts: milliseconds belong to this machine and to what else it did. *Waits* is how",
        "many WAIT or WAITAOF the server answered for the thousand. Servers, replica and client",
        "share the machine, its loopback and its disk: a wait elsewhere takes what it takes.",
        "",
        "| adds | one after another, ms each | ratio | 1,000 at once, ms | ratio | waits |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for place, kind in enumerate(KINDS):
        rows = [one[place] for one in rounds]
        single = median(one[place].single_ms / one[0].single_ms for one in rounds)
        thousand = median(one[place].thousand_ms / one[0].thousand_ms for one in rounds)
        cells = [
            kind.name,
            f"{median(row.single_ms for row in rows):.2f}",
            f"{single:.1f}x",
            f"{median(row.thousand_ms for row in rows):.0f}",
            f"{thousand:.1f}x",
            f"{median(row.waits for row in rows):.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    facts = [f"- machine: {os.cpu_count()} cores", f"- server: redis {version}"]
    return [*lines, "", *facts, "- command: python bench/durability.py"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    with servers() as running:
        version = running["none"].binary.version
        rounds = [
            [asyncio.run(measure(kind, running)) for kind in KINDS] for _ in range(told.rounds)
        ]
    print("\n".join(page(rounds, ".".join(map(str, version)))))


if __name__ == "__main__":
    main()
