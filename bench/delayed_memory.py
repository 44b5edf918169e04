"""What a delayed job costs Redis in memory, by how it can be found again by its id.

    .venv/bin/python bench/delayed_memory.py     # some minutes; prints a page for bench/reports/

The members are those that `add` writes, and so are the indexes; only the way to keep them differs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

import redis

from chasquimq import wire
from chasquimq.job import Envelope
from chasquimq.server import Kind, Server, find_server
from chasquimq.store.resp import Arg

KEYS = wire.Keys("bench")
NAME = b"send-reminder"
DUE_MS = 1_800_000_000_000
LIVES_S = 7_200
CHUNK = 2_000
TABLE = 65_536  # what changes by less is no table, but somebody's buffer


class Job(NamedTuple):
    job_id: bytes
    score: int
    member: bytes

    @property
    def short(self) -> bytes:
        """The score, and the member up to its id."""
        return b"%d %b" % (self.score, self.member[: wire.before_id(self.member, self.job_id)])


Command = tuple[Arg, ...]


def nothing(job: Job) -> Iterable[Command]:
    return ()


def short(job: Job) -> Iterable[Command]:
    yield "SET", KEYS.didx(job.job_id), job.short, "EX", LIVES_S


def short_for_ever(job: Job) -> Iterable[Command]:
    yield "SET", KEYS.didx(job.job_id), job.short


def copy(job: Job) -> Iterable[Command]:
    yield "SET", KEYS.didx(job.job_id), job.member, "EX", LIVES_S
    yield "SET", KEYS.dlid(job.job_id), "1", "EX", LIVES_S


def one_hash(job: Job) -> Iterable[Command]:
    yield "HSET", KEYS.didx("all"), job.job_id, job.short


WAYS: dict[str, Callable[[Job], Iterable[Command]]] = {
    "no index": nothing,
    "short index": short,
    "short index without a time to live": short_for_ever,
    "one hash of short indexes": one_hash,
    "marker and full copy (ids of the caller)": copy,
}


def jobs(count: int, payload: int, same_score: bool) -> Iterator[Job]:
    mint = wire.Mint()
    for number in range(count):
        job_id = mint.one(DUE_MS + number // 100)
        envelope = Envelope(job_id.decode(), b"x" * payload, DUE_MS)
        member = wire.join_member(NAME, wire.pack_envelope(envelope))
        yield Job(job_id, DUE_MS if same_score else DUE_MS + number, member)


def fill(client: redis.Redis, ahead: Iterator[Job], way: Callable[[Job], Iterable[Command]]) -> int:
    """Put them in; answers how many bytes Redis holds more than before."""
    client.flushall()
    before = settled(client)
    while chunk := list(islice(ahead, CHUNK)):
        pipe = client.pipeline(transaction=False)
        for job in chunk:
            pipe.execute_command("ZADD", KEYS.delayed, job.score, job.member)
            for command in way(job):
                pipe.execute_command(*command)
        pipe.execute()
    return settled(client) - before


def settled(client: redis.Redis) -> int:
    """What it holds once its tables have stopped to grow: they do so little by little."""
    seen = -TABLE
    while abs(seen - (now := int(client.info("memory")["used_memory"]))) > TABLE:
        seen = now
        time.sleep(0.3)
    return now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--jobs", type=int, default=200_000)
    told = parser.parse_args()
    print(f"Bytes of Redis's memory per delayed job, {told.jobs:,} jobs.\n")
    print("| server | payload | scores | way | bytes per job | more than no index |")
    print("|---|---|---|---|---|---|")
    kinds: tuple[Kind, ...] = ("redis", "valkey")
    for kind in kinds:
        binary = find_server(kind=kind)
        version = f"{kind} {'.'.join(map(str, binary.version))}"
        with Server(binary) as server, redis.Redis.from_url(server.url) as client:
            for payload in (100, 2_000):
                for same in (False, True):
                    measure(client, version, told.jobs, payload, same)
    print(f"\nMeasured {datetime.now(UTC):%Y-%m-%d} by `bench/delayed_memory.py`.")


def measure(client: redis.Redis, server: str, count: int, payload: int, same: bool) -> None:
    alone = 0.0
    for what, way in WAYS.items():
        each = fill(client, jobs(count, payload, same), way) / count
        alone = alone or each
        scores = "one" if same else "all different"
        row = (server, f"{payload:,} B", scores, what, f"{each:,.0f}", f"{each - alone:,.0f}")
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
