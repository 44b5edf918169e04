"""What is in Redis for one queue, seen with a plain client."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from chasquimq import wire
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer


class Entry(NamedTuple):
    """A job as it lies in the stream."""

    name: str
    id: str
    data: Any
    retry: Any


class Keys:
    def __init__(self, server: DialectServer, queue: str) -> None:
        self.client: Any = server.client(protocol=2)
        self.lock = f"{{chasqui:{queue}}}:promoter:lock"
        self.repeat = f"{{chasqui:{queue}}}:repeat"
        self.scheduler_lock = f"{{chasqui:{queue}}}:scheduler:lock"
        self.index = f"{{chasqui:{queue}}}:didx:*"
        self.stream, self.delayed, self.dlq, self.events = (
            f"{{chasqui:{queue}}}:{kind}" for kind in ("stream", "delayed", "dlq", "events")
        )

    def created_at_ms(self) -> dict[str, int]:
        """When each waiting or delayed job was created, according to the bytes in Redis."""
        envelopes = [fields[b"d"] for _, fields in self.client.xrange(self.stream)]
        members = self.client.zrange(self.delayed, 0, -1)
        envelopes += [wire.split_member(member)[1] for member in members]
        slots = [msgspec.msgpack.decode(envelope) for envelope in envelopes]
        return {slot[0]: slot[2] for slot in slots}

    def wait_delayed(self, count: int) -> None:
        eventually(lambda: self.client.zcard(self.delayed) == count)

    def wait_dead(self, count: int) -> None:
        eventually(lambda: self.client.xlen(self.dlq) == count)

    def wait_drained(self) -> None:
        eventually(lambda: not self.client.exists(self.delayed))
        eventually(lambda: self.client.xlen(self.stream) == 0)

    def completed(self) -> list[str]:
        """The ids in `completed` events, in order."""
        rows = [fields for _, fields in self.client.xrange(self.events)]
        return [fields[b"id"].decode() for fields in rows if fields[b"e"] == b"completed"]

    def jobs(self) -> list[Entry]:
        """What is in the stream, in order."""
        return [_entry(fields) for _, fields in self.client.xrange(self.stream)]

    def spec(self, key: str) -> str:
        return f"{self.repeat}:spec:{key}"

    def score(self, key: str) -> int | None:
        score = self.client.zscore(self.repeat, key)
        return None if score is None else int(score)

    def fired(self, key: str) -> int:
        return int(self.client.hget(self.spec(key), "fired") or 0)

    def now_ms(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds * 1000 + micros // 1000)

    def put_spec(self, key: str, packed: bytes, next_ms: int) -> None:
        """As another program might."""
        self.client.hset(self.spec(key), "spec", packed)
        self.client.zadd(self.repeat, {key: next_ms})

    def all_of_specs(self) -> list[bytes]:
        """Every key that belongs to a spec."""
        return list(self.client.keys(f"{self.repeat}*"))


def _entry(fields: dict[bytes, bytes]) -> Entry:
    slots = [*msgspec.msgpack.decode(fields[b"d"]), None]
    data = msgspec.msgpack.decode(slots[1])
    return Entry(fields.get(b"n", b"").decode(), slots[0], data, slots[4])
