"""A queue filled with what each view shows, written as workers and producers write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import redis
from scenarios import PAYLOAD

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.job import Envelope
from chasquimq.spark.client import Client

NOW_MS = 1_767_225_600_000
NAME = b"job"
CHUNK = 2_000

Command = tuple[Any, ...]


def jobs(keys: wire.Keys, number: int) -> Command:
    return "XADD", keys.stream, "*", "d", _envelope(number), "n", NAME


def delayed(keys: wire.Keys, number: int) -> Command:
    return "ZADD", keys.delayed, NOW_MS + number, wire.join_member(NAME, _envelope(number))


def dlq(keys: wire.Keys, number: int) -> Command:
    fields = wire.pack_dead(
        _envelope(number),
        NAME,
        b"%d-0" % (NOW_MS + number),
        "retries_exhausted",
        job_id=_job_id(number),
        attempt=25,
        error_type="builtins.TimeoutError",
        error="no answer from the bank within 30 s",
        failed_at_ms=NOW_MS + number,
    )
    return "XADD", keys.dlq, "*", *fields


def events(keys: wire.Keys, number: int) -> Command:
    """Started and completed by turns, as a worker tells it."""
    if number % 2:
        kind, told = "completed", {"attempt": 1, "duration_us": 1_500 + number % 1_000}
    else:
        kind, told = "active", {"attempt": 1, "created_ms": NOW_MS}
    fields = wire.pack_event(kind, _job_id(number // 2), NOW_MS + number, NAME, told)
    return "XADD", keys.events, "*", *fields


FILLED: dict[str, Callable[[wire.Keys, int], Command]] = {
    "jobs": jobs,
    "delayed": delayed,
    "dlq": dlq,
    "events": events,
}


def fill(url: str, queue: str, view: str, rows: int) -> None:
    keys, row = wire.Keys(queue), FILLED[view]
    commands = (row(keys, number) for number in range(rows))
    with Client(read_url(url)) as client:
        while chunk := list(islice(commands, CHUNK)):
            for answer in client.ask_each(chunk):
                if isinstance(answer, Exception):
                    raise answer


def clear(client: redis.Redis, queue: str) -> None:
    """Its markers too."""
    keys: Iterator[bytes] = client.scan_iter(match=f"{{chasqui:{queue}}}*", count=5_000)
    while some := list(islice(keys, CHUNK)):
        client.unlink(*some)


def _envelope(number: int) -> bytes:
    payload = wire.encode({**PAYLOAD, "user_id": number})
    return wire.pack_envelope(Envelope(_job_id(number), payload, NOW_MS))


def _job_id(number: int) -> str:
    return f"01M7J83K1HSEA0SZK{number:09d}"
