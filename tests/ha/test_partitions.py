"""A master is cut off from its replica, which is promoted: what was promised, and what is there."""

from __future__ import annotations

import random

import pytest

from chasquimq.config import Durability
from tests.ha.partitions import LEVELS, rounds_of
from tests.servers import Dialect, Servers


@pytest.mark.timeout(120)
@pytest.mark.parametrize("level", LEVELS)
def test_what_a_replica_confirmed_outlives_a_partition_and_the_rest_is_seen_to_be_lost(
    dialect: Dialect, servers: Servers, level: Durability
) -> None:
    """`make partitions` in short. The levels below promise nothing here, and lose."""
    with servers.private(dialect) as server:
        account = rounds_of(server, level, 2, random.Random())
    assert account.sum.confirmed > 0
    assert account.problem() is None
