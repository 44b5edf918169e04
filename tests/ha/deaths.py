"""How long a job stands still when its worker is killed: the second half of `make ha-times`.

A worker is killed with a job in its hands, and the clock runs until the job is begun again.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.chaos.kit.fleet import Fleet, Process
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.stage import Stage
from tests.servers import Dialect, Servers

LEASE_MS = 2_000
HELD = {"job": {"gate": "never"}}  # its second run returns at once


@contextmanager
def stage_on(dialect: Dialect) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory() as folder,
        Servers().private(dialect) as server,
        closing(Ledger(Path(folder) / "ledger")) as ledger,
        Fleet(ledger) as fleet,
    ):
        yield Stage(server, "deaths", ledger, fleet)


def another_lives(stage: Stage) -> float:
    workers = stage.sentries(2, LEASE_MS)
    time.sleep(1.5 * LEASE_MS / 1000)  # whoever has just come claims nothing yet
    return _killed(stage, workers, lambda: None)


def restarted(stage: Stage) -> float:
    return _killed(stage, [stage.sentry(LEASE_MS)], lambda: stage.sentry(LEASE_MS))


def restarted_by_name(stage: Stage) -> float:
    worker = stage.sentry(LEASE_MS, consumer_id="lasting")
    return _killed(stage, [worker], lambda: stage.sentry(LEASE_MS, consumer_id="lasting"))


def _killed(stage: Stage, workers: list[Process], then: Callable[[], object]) -> float:
    """Seconds from the death of the one that has the job to its next run."""
    stage.act(HELD)
    [run] = stage.started(1)
    stage.fleet.kill(next(one for one in workers if one.pid == run.pid))
    began_ns = time.monotonic_ns()
    then()
    return (stage.started(2)[1].at_ns - began_ns) / 1e9


DEATHS: dict[str, Callable[[Stage], float]] = {
    "worker killed, another lives": another_lives,
    "lone worker killed and started again": restarted,
    "the same with a lasting `consumer_id`": restarted_by_name,
}
