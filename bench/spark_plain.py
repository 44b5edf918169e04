"""What people write without the Spark source and sink: a loop in one process, with redis-py.

`python bench/spark_plain.py '{"what": "read", "url": ..., "queue": ..., "rows": ...}'` runs one of
them in a fresh process, and prints how long it took.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import redis
from scenarios import PAYLOAD

PAGE = 1_000
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode
_to_json = msgspec.json.Encoder().encode


def stream(queue: str) -> str:
    return f"{{chasqui:{queue}}}:stream"


def read(url: str, queue: str) -> int:
    """All columns of a job that most readers want, the payload as JSON; answers how many."""
    client: Any = redis.Redis.from_url(url)
    start, got = b"-", 0
    while page := client.xrange(stream(queue), start, "+", PAGE):
        rows = [_row(entry_id, fields) for entry_id, fields in page]
        start, got = b"(" + page[-1][0], got + len(rows)
    return got


def _row(entry_id: bytes, fields: dict[bytes, bytes]) -> tuple[Any, ...]:
    job_id, payload, created_ms, attempt, *_ = _unpack(fields[b"d"])
    return (
        entry_id.decode(),
        _moment(int(entry_id.partition(b"-")[0])),
        job_id,
        fields.get(b"n", b"").decode(),
        attempt,
        _moment(created_ms),
        _to_json(_unpack(payload)).decode(),
    )


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def write(url: str, queue: str, payloads: Iterable[dict[str, Any]]) -> int:
    """Encode and XADD, a thousand at a time; answers how many. What is retried is doubled."""
    client = redis.Redis.from_url(url)
    key, now_ms, sent = stream(queue), int(time.time() * 1000), 0
    pipeline = client.pipeline(transaction=False)
    for payload in payloads:
        body = _pack((f"job-{payload['user_id']}", _pack(payload), now_ms, 0))
        pipeline.xadd(key, {"d": body, "n": "job"})
        sent += 1
        if sent % PAGE == 0:
            pipeline.execute()
    pipeline.execute()
    return sent


def payloads(rows: int) -> Iterator[dict[str, Any]]:
    return ({**PAYLOAD, "user_id": number} for number in range(rows))


def main(orders: dict[str, Any]) -> None:
    begin = time.perf_counter()
    if orders["what"] == "read":
        done = read(orders["url"], orders["queue"])
    else:
        done = write(orders["url"], orders["queue"], payloads(orders["rows"]))
    seconds = time.perf_counter() - begin
    print(json.dumps({"rows": done, "seconds": seconds}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
