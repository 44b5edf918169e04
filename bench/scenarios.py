"""What is measured: each scenario, how many jobs it takes, and the ratio we are after.

The two sides get different numbers of jobs, so that each run lasts about a second: what is
compared are rates.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["worker", "add", "concurrent", "bulk"]

# Ten keys, 142 bytes as MessagePack: about what a small real job carries.
PAYLOAD: dict[str, Any] = {
    "user_id": 184467,
    "action": "send_receipt",
    "email": "some@example.com",
    "amount": 1299,
    "currency": "EUR",
    "retry": False,
    "locale": "de_DE",
    "template": "receipt-v2",
    "order": "A-20931",
    "ts": 1767225600,
}


@dataclass(frozen=True)
class Scenario:
    name: str
    kind: Kind
    ours: int  # jobs in one of our runs
    reference: int  # ... and in one of the reference's; 0: it does not take part
    target: float | None = None  # ours / reference, or against the scenario named by `against`
    size: int = 1  # jobs of one call, or calls at a time
    server: Literal["redis", "valkey"] = "redis"
    against: str = ""  # compare with our own run of another scenario
    options: dict[str, Any] = field(default_factory=dict)  # for the Worker


EVENTS_ON = "worker, 100 at a time, events on"
SCENARIOS = (
    Scenario(EVENTS_ON, "worker", 60_000, 8_000, 10.0, options={"concurrency": 100}),
    Scenario(
        "worker, 100 at a time, events off",
        "worker",
        100_000,
        15_000,
        10.0,
        options={"concurrency": 100, "events_enabled": False},
    ),
    Scenario(
        "worker, 1 at a time, events on", "worker", 60_000, 2_500, 25.0, options={"concurrency": 1}
    ),
    Scenario("add, one after another", "add", 5_000, 2_500, 1.9),
    Scenario("add, 100 at once", "concurrent", 50_000, 5_000, 10.0, size=100),
    Scenario("add_bulk of 50", "bulk", 60_000, 30_000, 2.0, size=50),
    Scenario("add_bulk of 1000", "bulk", 100_000, 30_000, 3.0, size=1000),
    Scenario(
        "worker on Valkey (portable dialect)",
        "worker",
        60_000,
        0,
        0.8,
        server="valkey",
        against=EVENTS_ON,
        options={"concurrency": 100},
    ),
)
