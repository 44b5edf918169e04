"""A set of servers for each test: they are killed and moved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ha.kit import Cluster, Watched, cluster, watched
from tests.servers import DIALECTS, Dialect, binary_for

# The dialects' own servers; what is forced upon one of them changes nothing about topology.
KINDS = [pytest.param(one, id=one.name) for one in DIALECTS if one.forced is None]


@pytest.fixture(params=KINDS)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    kind: Dialect = request.param
    return kind


@pytest.fixture
def sentinels(dialect: Dialect, tmp_path: Path) -> Iterator[Watched]:
    with watched(binary_for(dialect), tmp_path) as servers:
        yield servers


@pytest.fixture
def nodes(dialect: Dialect) -> Iterator[Cluster]:
    with cluster(binary_for(dialect)) as servers:
        yield servers
