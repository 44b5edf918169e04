"""Health tells the truth: what a worker process says of itself while its server comes and goes.

I9, read from the file that a sentry writes, as a probe would. Whether a connection answers does
not depend on the dialect.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.kit.fleet import Process
from tests.chaos.kit.stage import Stage
from tests.chaos.kit.wait import eventually

LEASE_MS = 1_000
SOON_S = 5.0  # within which I9 wants it to be seen
RETURN_S = 20.0


def healthy(stage: Stage, worker: Process, timeout: float = RETURN_S) -> dict[str, Any]:
    def asked() -> dict[str, Any]:
        health = stage.health(worker)
        return health if health.get("healthy") else {}

    return eventually(asked, timeout, or_say=lambda: stage.health(worker))


def problems(stage: Stage, worker: Process) -> list[str]:
    """What it finds wrong with itself, which it must find soon."""
    found: list[str] = eventually(
        lambda: stage.health(worker)["problems"], SOON_S, or_say=lambda: stage.health(worker)
    )
    assert stage.health(worker)["healthy"] is False
    return found


def test_a_server_that_freezes_or_dies_is_seen_and_so_is_its_return(lone_stage: Stage) -> None:
    stage = lone_stage
    worker = stage.sentry(LEASE_MS)
    first = healthy(stage, worker)
    assert first["state"] == "running"
    assert set(first["tasks"].values()) == {"running"}
    assert all(connection["up"] for connection in first["connections"].values())

    stage.server.server.pause()
    assert problems(stage, worker)
    stage.server.server.resume()
    healthy(stage, worker)

    stage.server.server.kill()
    assert any("down" in problem for problem in problems(stage, worker))
    stage.server.server.start()
    back = healthy(stage, worker)
    assert all(connection["reconnects"] for connection in back["connections"].values())
    stage.act({"job": {}})
    stage.drained()
    assert stage.fleet.terminate(worker) == 0
    assert stage.health(worker)["state"] == "stopped"


@pytest.mark.parametrize("loop", ["promoter", "claimer"])
def test_a_loop_that_dies_ends_the_run_and_is_told(lone_stage: Stage, loop: str) -> None:
    """Also I1: what it held is given back on the way out."""
    stage = lone_stage
    stage.act({"job": {"gate": "never"}})
    worker = stage.sentry(LEASE_MS, dies=loop)
    healthy(stage, worker)
    stage.started(1)
    stage.open("die")
    eventually(lambda: not worker.is_alive)
    health = stage.health(worker)
    assert (health["state"], health["healthy"]) == ("failed", False)
    assert f"the {loop} dies" in health["raised"]
    assert any(f"the {loop} dies" in problem for problem in health["problems"])
    verdict = stage.verdict()
    assert verdict.problems(drained=False) == [], str(verdict)
    assert verdict.scan.unread == ("job",)


def test_a_frozen_server_is_seen_with_the_usual_lease_too(lone_stage: Stage) -> None:
    """Where renewals are ten seconds apart, and only an unanswered question can tell."""
    stage = lone_stage
    worker = stage.sentry(30_000)
    healthy(stage, worker)
    stage.server.server.pause()
    eventually(lambda: not stage.health(worker)["healthy"], 2 * SOON_S)
    stage.server.server.resume()
    healthy(stage, worker)
