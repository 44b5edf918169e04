"""A set of servers for each test: they are killed and moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
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


@pytest.fixture(scope="module")
def rings() -> Iterator[Callable[[Dialect], Cluster]]:
    """Clusters that nobody kills are made once."""
    made: dict[Dialect, Cluster] = {}
    with ExitStack() as stack:

        def ring(dialect: Dialect) -> Cluster:
            if dialect not in made:
                made[dialect] = stack.enter_context(cluster(binary_for(dialect)))
            return made[dialect]

        yield ring


@pytest.fixture
def ring(rings: Callable[[Dialect], Cluster], dialect: Dialect) -> Cluster:
    """A cluster to move slots in; for one to kill nodes of there is `nodes`."""
    return rings(dialect)


@pytest.fixture
def nodes(dialect: Dialect) -> Iterator[Cluster]:
    with cluster(binary_for(dialect)) as servers:
        yield servers
