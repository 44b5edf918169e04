"""A Worker that, in the first process that runs it, says that it cannot work any more.

It begins to say so when the key `<queue>:stall` is there; its pid is kept in `<queue>:stalled`.
"""

from __future__ import annotations

import os

import msgspec

from chasquimq import Worker
from chasquimq.health import Health
from tests.cli.crew_app import QUEUE, client, handle

WHY = "all of its slots are dead"


class Stalls(Worker):
    def health(self) -> Health:
        health = super().health()
        if health.state != "running" or not client.exists(f"{QUEUE}:stall"):
            return health
        client.set(f"{QUEUE}:stalled", os.getpid(), nx=True)
        if int(client.get(f"{QUEUE}:stalled") or 0) != os.getpid():
            return health
        return msgspec.structs.replace(health, stalled=WHY)


worker = Stalls(QUEUE, handle, claim_min_idle_ms=1_000, concurrency=4, drain_ms=2_000)
