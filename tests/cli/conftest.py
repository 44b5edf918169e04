"""What tests of the command use."""

from __future__ import annotations

import pytest

from tests.cli.kit import Chasqui
from tests.servers import DialectServer


@pytest.fixture
def chasqui(dialect_server: DialectServer) -> Chasqui:
    """The command, on each dialect."""
    return Chasqui(dialect_server)
