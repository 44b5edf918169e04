"""What lies in Redis is what other programs, and other versions of ours, look for there.

Guards "wire bytes, keys" of what must not change. Scripts have no names in Redis: each program
sends the text of its own, so there is nothing that versions could disagree about but the data,
and numbers of KEYS and ARGV are nobody's business either. Bytes that the reference shares are held
to its recordings (`tests/vectors`) and to the reference itself (`tests/interop`); this is the list
of all of it, ours included, as a used queue shows it.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import redis
from pyspark.sql.types import StringType

from chasquimq import QueueFullError
from chasquimq.spark.write.run import run_of_batch
from tests.engine.desk import Desk
from tests.frozen import scene
from tests.frozen.lists import compare
from tests.servers import DIALECTS, Servers
from tests.spark_redis.staging import Write
from tests.spark_redis.test_act import Grave
from tests.spark_redis.writing import Writing, numbered

# What differs from run to run, by what it is. The first that fits counts.
PATTERNS = (
    (r"\{chasqui:[^}]*\}", "{chasqui:<queue>}"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]+Z", "<time>"),
    (r"\bprocess [0-9]+ on [^:]+", "process <number> on <host>"),
    (r"\bquery-[a-z]+", "<query>"),
    (r"\brun-[a-z]+", "<run>"),
    (r"\bwrite-[a-z]+", "<write>"),
    (r"\bkey-[a-z]+@[0-9]{13}", "<id>"),
    (r"\bkey-[a-z]+", "<key>"),
    (r"\bid-[a-z]+|\b[0-9A-HJKMNP-TV-Z]{26}\b", "<id>"),
    (r"\b[cps]-[0-9a-f]{8}-[0-9a-f-]{27}", "<consumer>"),
    (r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b", "<uuid>"),
    (r"\b[0-9]{13}-[0-9]+\b", "<entry id>"),
    (r"\b[0-9]+-[0-9a-f]{12}\b", "<attempt>"),
    (r"( <entry id>=[0-9]+)+", " <entry id>=<ms>..."),
    (r"\b[0-9a-f]{16,}\b", "<token>"),
    (r"\b[0-9]{13}\b", "<ms>"),
    (r"\b[0-9]+\b", "<number>"),
)
CHUNK_BYTES = 16  # of the marker of a partition: a digest, and how many rows
NAME = r"\{chasqui:frozen\}:[^\s\"]*(?<![:*])(?=[\s\"]|$)"  # a prefix alone, or a pattern, is none
# Fields whose words readers look for, and fields that hold what users and handlers said.
OUR_WORDS, THEIR_WORDS = (b"e", b"detail", b"error_type"), (b"n", b"error", b"t")


def test_what_a_used_queue_shows_is_what_the_list_says(servers: Servers, tmp_path: Path) -> None:
    native, portable, *_ = DIALECTS
    seen: dict[str, set[str]] = {}
    for dialect in (native, portable):
        with servers.private(dialect) as server:
            desk = Desk(server, "frozen")
            folder = tmp_path / dialect.name
            folder.mkdir()
            seen[dialect.name] = asyncio.run(used(desk, folder))
    common = set.intersection(*seen.values())
    only = [f"{line} [{name}]" for name, lines in seen.items() for line in lines - common]
    compare("redis", [*common, *only])


def test_what_spark_leaves_there_is_what_the_list_says(servers: Servers) -> None:
    with servers.private(DIALECTS[0]) as server:
        desk = Desk(server, "frozen")
        with names_in_commands(desk) as names:
            found = {line for _ in written_by_spark(desk) for line in contents(desk)}
            graves = Grave(server, "frozen")
            graves.act(graves.order("purge"), graves.bury(3))
            found |= {*contents(desk)}
    lines = [*found, *(f"name {name}" for name in names)]
    compare("spark_redis", [line for line in lines if ":spark:" in line])


def written_by_spark(desk: Desk) -> Iterator[None]:
    """One write in each way, in its steps; the last as a batch of a stream."""
    url, rows = desk.server.url, numbered(range(3))
    direct = Writing(url, desk.name, run_id="run-direct")
    told = direct.task(rows)
    yield
    direct.commit(told)
    yield
    keyed = [row | {"key": f"id-{number}"} for number, row in zip("abc", rows, strict=True)]
    by_id = Writing(url, desk.name, {"key": StringType()}, "run-ids", idColumn="key")
    told = by_id.task(keyed)
    yield
    by_id.commit(told)
    yield
    aborted = Write(url, desk.name, "run-aborted")
    aborted.way.abort([aborted.stage(0, range(3))])
    batch = run_of_batch(desk.name, "query-one", 7, "write-one")
    staged = Write(url, desk.name, run=batch, max_stream_len=8, on_full="fail")
    stage = staged.stage(0, range(3))
    yield
    with suppress(QueueFullError):  # written is its manifest, moved are some of the rows
        staged.commit(stage)
    yield
    desk.redis.delete(desk.keys.stream)
    staged.commit(stage)
    yield


async def used(desk: Desk, folder: Path) -> set[str]:
    """Use a queue in every way, and tell what came to lie in Redis."""
    with names_in_commands(desk) as names:
        await scene.add_jobs(desk)
        found = {*contents(desk)}
        scene.leave_strange_entries(desk)
        scene.make_late(desk)
        async with scene.working(desk):
            found |= {*contents(desk)}
        await scene.care_for(desk, folder)
        found |= {*contents(desk)}
    return found | {f"name {name}" for name in names}


@contextmanager
def names_in_commands(desk: Desk) -> Iterator[set[str]]:
    """Keys and channels of the queue in all commands of the block, those of scripts included."""
    names, end = set[str](), "that is all"

    def listen(monitor: Any) -> None:
        for one in monitor.listen():
            if end in one["command"]:
                return
            names.update(map(words, re.findall(NAME, one["command"])))

    with desk.redis.monitor() as monitor:
        listener = threading.Thread(target=listen, args=(monitor,))
        listener.start()
        try:
            yield names
        finally:
            desk.redis.echo(end)
            listener.join()


def contents(desk: Desk) -> Iterator[str]:
    """What lies under each key of the queue, in a form that is the same in every run."""
    for key in desk.redis.scan_iter(match="{chasqui:frozen}:*", count=1000):
        kind = desk.redis.type(key).decode()
        expires = ", expires" if desk.redis.ttl(key) >= 0 else ""
        front = f"{kind}{expires} {words(key.decode())}"
        for value in VALUES[kind](desk.redis, key):
            yield f"{front} = {value}"


def rows(client: redis.Redis, key: bytes) -> Iterator[str]:
    for _, fields in client.xrange(key):
        said_by_handler = fields.get(b"e") == b"failed"
        yield " ".join(
            f"{name.decode()}={field(name, value, said_by_handler)}"
            for name, value in fields.items()
        )


def field(name: bytes, value: bytes, said_by_handler: bool) -> str:
    if name == b"reason":
        return "<text>" if said_by_handler else value.decode()
    if name in OUR_WORDS:
        return value.decode()
    return "<text>" if name in THEIR_WORDS else form(value)


VALUES: dict[str, Callable[[redis.Redis, bytes], Iterable[str]]] = {
    "stream": rows,
    "string": lambda client, key: [form(client.get(key))],
    "list": lambda client, key: [form(one) for one in client.lrange(key, 0, -1)],
    "set": lambda client, key: [form(one) for one in client.smembers(key)],
    "zset": lambda client, key: [form(member) for member in client.zrange(key, 0, -1)],
    "hash": lambda client, key: [
        f"{words(name.decode())}={form(value)}" for name, value in client.hgetall(key).items()
    ],
}


def form(value: bytes) -> str:
    """Text with its numbers and ids named; MessagePack as its types; a member in its parts."""
    if value.isascii() and value.decode().isprintable():
        return words(value.decode()).rstrip()
    if len(value) == CHUNK_BYTES:
        return "<chunk, 16 bytes>"
    if re.match(rb"[0-9]{13} ", value):
        return "<ms> <start of a member>"
    if value[2:4] == b"\0\0":
        size = int.from_bytes(value[:4], "little")
        return f"<length, 4 bytes> <name> {form(value[4 + size :])}"
    for skipped in (0, 8):  # a digest may stand in front
        try:
            read = types(msgspec.msgpack.decode(value[skipped:]))
        except msgspec.DecodeError:
            continue
        return f"<digest, 8 bytes> {read}" if skipped else read
    return "<unreadable>"


def words(text: str) -> str:
    for pattern, name in PATTERNS:
        text = re.sub(pattern, name, text)
    return text


def types(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(types, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {types(one)}' for key, one in value.items())}}}"
    return "nil" if value is None else type(value).__name__
