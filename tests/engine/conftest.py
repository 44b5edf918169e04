from __future__ import annotations

import pytest

from tests.engine.desk import Desk
from tests.servers import DialectServer


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    """A queue of one's own on a shared server, once per dialect."""
    return Desk(dialect_server, queue_name)


@pytest.fixture
def own_desk(own_server: DialectServer, queue_name: str) -> Desk:
    """The same on a server of one's own, to flush, kill and start again."""
    return Desk(own_server, queue_name)
