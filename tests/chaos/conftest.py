"""What chaos tests may use besides the servers: a ledger, stages, and servers without a dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq.server import Server
from tests.chaos.kit.dice import SEED
from tests.chaos.kit.fleet import Fleet
from tests.chaos.kit.ledger import Ledger
from tests.chaos.kit.stage import Stage
from tests.servers import DIALECTS, Dialect, DialectServer, Servers

EACH_DIALECT = [pytest.param(dialect, id=dialect.name) for dialect in DIALECTS]
EACH_SERVER = [pytest.param(d, id=d.name) for d in DIALECTS if d.forced is None]


@pytest.fixture(params=EACH_SERVER)
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Server]:
    """A server for one test, once per program: for tests that do not speak through our store."""
    with servers.private(request.param) as private:
        yield private.server


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger")
    yield ledger
    ledger.close()


@pytest.fixture
def stage(own_server: DialectServer, queue_name: str, ledger: Ledger) -> Iterator[Stage]:
    """On a server of its own, which may be frozen and killed."""
    with Fleet(ledger) as fleet:
        yield Stage(own_server, queue_name, ledger, fleet)


@pytest.fixture
def shared_stage(dialect_server: DialectServer, queue_name: str, ledger: Ledger) -> Iterator[Stage]:
    """On a server that others use, too: for faults of processes and of the network."""
    with Fleet(ledger) as fleet:
        yield Stage(dialect_server, queue_name, ledger, fleet)


@pytest.fixture
def lone_stage(servers: Servers, queue_name: str, ledger: Ledger) -> Iterator[Stage]:
    """On one server only, of its own: for what does not depend on the dialect."""
    with servers.private(DIALECTS[0]) as server, Fleet(ledger) as fleet:
        yield Stage(server, queue_name, ledger, fleet)


@pytest.fixture(params=EACH_DIALECT if SEED else EACH_DIALECT[:1])
def seeded_stage(
    request: pytest.FixtureRequest, servers: Servers, queue_name: str, ledger: Ledger
) -> Iterator[Stage]:
    """On a server of its own: on each with a seed, on one without."""
    dialect: Dialect = request.param
    with servers.private(dialect) as server, Fleet(ledger) as fleet:
        yield Stage(server, queue_name, ledger, fleet)
