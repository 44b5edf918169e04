"""One Spark session for all tests of a process: starting one takes seconds.

`local[2,4]`: two cores, and tasks that fail are run again, as on a cluster. What Spark starts has
the environment of that moment, so the address that pages name by `urlEnv` is set before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from chasquimq.spark.session import session
from tests.servers import DIALECTS, Dialect, DialectServer, Servers

DB = 9  # where pages may choose their queue names freely
NATIVE, PORTABLE = DIALECTS[0], DIALECTS[2]


def give_time(items: list[pytest.Item], folder: str) -> None:
    """Spark takes its time on a busy machine; a test that hangs ends all the same."""
    for item in items:
        if f"/{folder}/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, servers: Servers) -> Iterator[SparkSession]:
    home: Path = tmp_path_factory.mktemp("spark")
    url = os.environ["REDIS_URL"] = f"{servers.shared(NATIVE).url}/{DB}"
    # Commands of pages name it by that variable; other tests of this process have no such address.
    with mock.patch.dict(os.environ, CHASQUI_REDIS_URL=url):
        made = start(home)
    made.sparkContext.setLogLevel("OFF")
    yield made
    process = SparkContext._gateway.proc
    if process.poll() is not None:
        return  # tests of another folder ran in this process, too, and had the same one
    made.stop()
    SparkContext._gateway.shutdown()
    process.stdin.close()  # which the JVM waits for
    process.wait(30)


def start(home: Path) -> SparkSession:
    return session(
        "tests",
        master="local[2,4]",
        conf={
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.default.parallelism": "2",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            # Half the CPU time, in a JVM that lives for a minute or two.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.local.dir": str(home),
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )


@pytest.fixture(params=[pytest.param(one, id=one.name) for one in (NATIVE, PORTABLE)])
def server(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    """Of each kind one: Spark's side forces no dialect, every server runs the same scripts."""
    dialect: Dialect = request.param
    return servers.shared(dialect)
