from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.desk import Desk
from tests.servers import DIALECTS, DialectServer, Servers


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    """A queue of one's own on a shared server, once per dialect."""
    return Desk(dialect_server, queue_name)


@pytest.fixture
def lone_desk(servers: Servers, queue_name: str) -> Iterator[Desk]:
    """The same on a server of one's own, to freeze and kill: where dialects make no difference."""
    with servers.private(DIALECTS[-1]) as server:
        yield Desk(server, queue_name)
