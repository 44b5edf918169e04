"""What is done to workers, server and network in a soak, one fault at a time.

A fault blocks until it is over; what it says with `scene.over()` is when its cause is gone, after
which jobs are expected to run again. A worker that ended is replaced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any

from chasquimq import Queue
from chasquimq.server import Server
from tests.chaos.kit.fleet import Fleet, Orders, Process
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.proxy import Proxy
from tests.soak.member import MODULE

STOP_S = 60.0  # a clean stop takes no longer than this, on any machine


class Scene:
    """All that can be broken, and the dice."""

    def __init__(
        self, server: Server, client: Any, proxy: Proxy, fleet: Fleet, orders: Orders, seed: int
    ) -> None:
        self.server = server
        self.client = client
        self.proxy = proxy
        self.fleet = fleet
        self.chance = Random(seed)
        self.lease_s = orders.claim_min_idle_ms / 1000
        self.problems: list[str] = []
        self.workers: list[Process] = []
        self.over_ns = 0
        self.orders = orders

    @property
    def ledger(self) -> Ledger:
        return self.fleet.ledger

    def hire(self, count: int = 1) -> None:
        self.workers += self.fleet.start_many([self.orders] * count, module=MODULE)

    def victim(self) -> Process:
        return self.chance.choice(self.workers)

    def lasts(self, low: float, high: float) -> None:
        """So many leases, about."""
        time.sleep(self.chance.uniform(low, high) * self.lease_s)

    def over(self) -> None:
        self.over_ns = time.monotonic_ns()


def kill_worker(scene: Scene) -> None:
    one = scene.victim()
    scene.workers.remove(one)
    scene.fleet.kill(one)
    scene.over()
    scene.hire()


def stop_worker(scene: Scene) -> None:
    """SIGTERM. It is not noted as a death: what it held must have been given back."""
    one = scene.victim()
    scene.workers.remove(one)
    scene.ledger.fault(f"SIGTERM {one.pid}")
    code = one.terminate(STOP_S)
    if code:
        scene.problems.append(f"SIGTERM: exit code {code}\n{one.errors}")
    scene.over()
    scene.hire()


def freeze_worker(scene: Scene) -> None:
    one = scene.victim()
    one.pause()
    scene.ledger.frozen(one.pid)
    scene.lasts(1.2, 1.6)
    one.resume()
    scene.over()
    time.sleep(scene.lease_s)  # its next renewal, which tells it, is due within a third of that
    scene.ledger.thawed(one.pid)


def kill_server(scene: Scene) -> None:
    scene.server.kill()
    scene.lasts(0.05, 1.8)
    scene.server.start()
    scene.over()
    # As docs/explanation/delivery.md advises: else the next crash may find a torn transaction.
    scene.client.bgrewriteaof()


def freeze_server(scene: Scene) -> None:
    scene.server.pause()
    scene.lasts(0.2, 1.8)
    scene.server.resume()
    scene.over()


def kill_clients(scene: Scene) -> None:
    scene.client.client_kill_filter(_type="normal", skipme=True)
    scene.over()


def flush_scripts(scene: Scene) -> None:
    scene.client.script_flush()
    scene.over()


def reset_connections(scene: Scene) -> None:
    scene.proxy.reset()
    scene.over()


def cut_replies(scene: Scene) -> None:
    scene.proxy.cut(scene.chance.randint(5, 200), every=True)
    scene.lasts(0.3, 0.6)
    scene.proxy.heal()
    scene.over()


def black_hole(scene: Scene) -> None:
    scene.proxy.black_hole()
    scene.lasts(0.2, 1.8)
    scene.proxy.heal()
    scene.over()


def pause_queue(scene: Scene) -> None:
    asyncio.run(_hold(scene.orders, True))
    scene.lasts(0.2, 0.6)
    asyncio.run(_hold(scene.orders, False))
    scene.over()


async def _hold(orders: Orders, paused: bool) -> None:
    queue = Queue(orders.queue, redis_url=orders.url, dialect=orders.dialect)  # type: ignore[arg-type]
    async with queue:
        await (queue.pause("a soak") if paused else queue.resume())


FAULTS: dict[str, Callable[[Scene], None]] = {
    "worker kill -9": kill_worker,
    "worker SIGTERM": stop_worker,
    "worker SIGSTOP past its lease": freeze_worker,
    "server kill -9 and restart": kill_server,
    "server SIGSTOP": freeze_server,
    "CLIENT KILL of all": kill_clients,
    "SCRIPT FLUSH": flush_scripts,
    "all connections reset": reset_connections,
    "replies cut": cut_replies,
    "black hole": black_hole,
    "queue paused": pause_queue,
}


def draw(chance: Random) -> list[str]:
    """Each of them once, in random order."""
    return chance.sample(list(FAULTS), len(FAULTS))
