"""What tests of the command use."""

from __future__ import annotations

import pytest

from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, DialectServer, Servers


@pytest.fixture
def chasqui(dialect_server: DialectServer) -> Chasqui:
    """The command, on each dialect."""
    return Chasqui(dialect_server)


@pytest.fixture
def native(servers: Servers) -> Chasqui:
    """The command on one dialect, for what none makes a difference to."""
    return Chasqui(servers.shared(DIALECTS[0]))
