from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.desk import Desk
from tests.engine.shelter import Shelter
from tests.replicas import replica_of
from tests.servers import DialectServer


@pytest.fixture
def desk(dialect_server: DialectServer, queue_name: str) -> Desk:
    """A queue of one's own on a shared server, once per dialect."""
    return Desk(dialect_server, queue_name)


@pytest.fixture
def own_desk(own_server: DialectServer, queue_name: str) -> Desk:
    """The same on a server of one's own, to flush, kill and start again."""
    return Desk(own_server, queue_name)


@pytest.fixture
def shelter(own_desk: Desk) -> Iterator[Shelter]:
    """The same with a replica."""
    with replica_of(own_desk.server) as replica:
        own_desk.redis.config_resetstat()
        yield Shelter(own_desk, replica)
