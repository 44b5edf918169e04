"""What every test may use: real servers in both dialects, and a queue name of its own."""

from __future__ import annotations

import re
import signal
import uuid
from collections.abc import Iterator

import pytest

from tests.servers import Dialect, DialectServer, Servers

pytest_plugins = ["pytester", "tests.plugin", "tests.tiers", "tests.share", "tests.orphan"]

# What a shell puts in the background ignores Ctrl-C, and under nohup the end of its terminal; what
# it starts would inherit that, and tests press those keys.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    with Servers() as servers:
        yield servers


@pytest.fixture(scope="session")
def dialect_server(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    """A server shared by all tests, once per dialect (`tests/tiers.py` chooses them): use
    `queue_name`, never flush or stop it."""
    dialect: Dialect = request.param
    return servers.shared(dialect)


@pytest.fixture
def own_server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[DialectServer]:
    """A server for one test, once per dialect, to flush, pause, kill and start again (AOF on)."""
    dialect: Dialect = request.param
    with servers.private(dialect) as server:
        yield server


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> str:
    """Unique, and telling whose it is."""
    test = re.sub(r"\W+", "-", getattr(request.node, "originalname", request.node.name))[:60]
    return f"{test}-{uuid.uuid4().hex[:12]}"
