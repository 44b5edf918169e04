"""What chaos tests may use besides the servers: a ledger, and servers without a dialect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq.server import Server
from tests.chaos.kit.ledger import Ledger
from tests.servers import DIALECTS, Servers

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
