"""Both sides on one native server: the reference speaks no other dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.earlier import LACKING
from tests.interop.keys import Keys
from tests.interop.side import Side
from tests.servers import DIALECTS, DialectServer, Servers

NATIVE = DIALECTS[0]
PAIRS = [("reference", "ours"), ("ours", "reference")]
# While a new version is deployed both are there.
ROLLING = [
    pytest.param(*pair, marks=[pytest.mark.slow, pytest.mark.expected_skip(LACKING)])
    for pair in [("earlier", "ours"), ("ours", "earlier")]
]
# The reference beside itself: what a failure of a pair says is held against it.
CONTROL = pytest.param("reference", "reference", marks=pytest.mark.slow)
across = pytest.mark.parametrize(("a", "b"), [*PAIRS, *ROLLING], ids=lambda name: name)
both_ways = pytest.mark.parametrize(("a", "b"), [*PAIRS, *ROLLING, CONTROL], ids=lambda name: name)


@pytest.fixture(scope="session", params=[pytest.param(NATIVE, id=NATIVE.name)])
def native_server(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    return servers.shared(request.param)


@pytest.fixture
def side(native_server: DialectServer, queue_name: str, tmp_path: Path) -> Iterator[MakeSide]:
    """Makes sides, by name, on this test's queue; all are stopped at its end."""
    with ExitStack() as stack:

        def make(name: str) -> Side:
            return stack.enter_context(
                Side(name, native_server.url, queue_name, tmp_path / f"{name}.stderr")
            )

        yield make


MakeSide = Callable[[str], Side]


@pytest.fixture
def keys(native_server: DialectServer, queue_name: str) -> Keys:
    return Keys(native_server, queue_name)
