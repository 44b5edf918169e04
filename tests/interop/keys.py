"""What is in Redis for one queue, seen with a plain client."""

from __future__ import annotations

from typing import Any

import msgspec

from chasquimq import wire
from tests.chaos.kit.wait import eventually
from tests.servers import DialectServer


class Keys:
    def __init__(self, server: DialectServer, queue: str) -> None:
        self.client: Any = server.client(protocol=2)
        self.lock = f"{{chasqui:{queue}}}:promoter:lock"
        self.index = f"{{chasqui:{queue}}}:didx:*"
        self.stream, self.delayed, self.dlq = (
            f"{{chasqui:{queue}}}:{kind}" for kind in ("stream", "delayed", "dlq")
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
