from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers import DIALECTS, DialectServer, Servers
from tests.sync.counter import Counter


@pytest.fixture
def counter(dialect_server: DialectServer, queue_name: str, tmp_path: Path) -> Counter:
    """A queue of one's own on a shared server, once per dialect."""
    return Counter(dialect_server, queue_name, tmp_path)


@pytest.fixture
def any_counter(servers: Servers, queue_name: str, tmp_path: Path) -> Counter:
    """The same on one server, for what is between a program and its interpreter."""
    return Counter(servers.shared(DIALECTS[-1]), queue_name, tmp_path)


@pytest.fixture
def own_counter(servers: Servers, queue_name: str, tmp_path: Path) -> Iterator[Counter]:
    """The same on a server of one's own, to freeze and kill."""
    with servers.private(DIALECTS[-1]) as server:
        yield Counter(server, queue_name, tmp_path)
