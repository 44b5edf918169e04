"""Those users of the page on users for whom it takes a JVM: each list is enough for its role, and
has nothing to spare. Those for reads and writes, which are proven without one
(`tests/security/test_users.py`), need no more when Spark itself calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.engine.desk import Desk
from tests.pipelines.exercise import COMMANDS, EXERCISES, Scene
from tests.security.exercise import Role
from tests.security.users import Guest, is_native, listed
from tests.servers import DialectServer

Exercise = Callable[[Role, SparkSession], None]


def do(
    server: DialectServer,
    role: str,
    folder: Path,
    spark: SparkSession,
    what: tuple[Scene, Exercise],
) -> tuple[set[str], set[str]]:
    """What it used, and what it may; nothing was refused."""
    scene, exercise = what
    desk = Desk(server, "mail")
    asyncio.run(scene(desk))
    guest = Guest(desk, role)
    exercise(Role(desk, guest.url, folder), spark)
    used = guest.used()
    assert desk.redis.acl_log() == []
    return used, listed(role, native=is_native(server, role))


@pytest.mark.parametrize("role", EXERCISES)
def test_a_list_is_enough_and_all_of_it_is_used(
    spark: SparkSession, own_server: DialectServer, role: str, tmp_path: Path
) -> None:
    used, may = do(own_server, role, tmp_path, spark, EXERCISES[role])
    assert used == may


@pytest.mark.parametrize("role", COMMANDS)
def test_spark_itself_asks_for_no_more(
    spark: SparkSession, own_server: DialectServer, role: str, tmp_path: Path
) -> None:
    used, may = do(own_server, role, tmp_path, spark, COMMANDS[role])
    assert used <= may
