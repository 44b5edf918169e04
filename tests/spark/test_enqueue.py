"""`chasqui spark enqueue` and `pipelines.enqueue`: rows of all sources, as Redis has them then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cli.kit import Chasqui, Ended
from tests.servers import DialectServer
from tests.spark_redis.writing import Shelf

USERS = [{"user": n, "email": f"user{n}@example.org", "total": n + 0.5} for n in range(60)]
Enqueue = Callable[..., Ended]


@pytest.fixture
def shelf(server: DialectServer, queue_name: str) -> Shelf:
    return Shelf(server.client(), queue_name)


@pytest.fixture
def enqueue(spark: SparkSession, server: DialectServer, queue_name: str) -> Enqueue:
    chasqui = Chasqui(server)

    def run(*words: object) -> Ended:
        return chasqui.call("spark", "enqueue", queue_name, *map(str, words))

    return run


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Path:
    """The same users in each format."""
    frame = spark.createDataFrame(USERS, "user BIGINT, email STRING, total DOUBLE")
    frame.repartition(3).write.parquet(str(tmp_path / "users.parquet"))
    frame.write.orc(str(tmp_path / "users.orc"))
    lines = [f"{u['user']},{u['email']},{u['total']}" for u in USERS]
    (tmp_path / "users.csv").write_text("\n".join(["user,email,total", *lines, ""]))
    (tmp_path / "users.tsv").write_text(
        "\n".join(["user,email,total", *lines, ""]).replace(",", "\t")
    )
    (tmp_path / "users.jsonl").write_text("".join(json.dumps(u) + "\n" for u in USERS))
    return tmp_path


def users(shelf: Shelf) -> list[dict[str, object]]:
    return sorted((job.payload for job in shelf.jobs()), key=lambda user: user["user"])


@pytest.mark.parametrize(
    "file", ["users.parquet", "users.orc", "users.csv", "users.tsv", "users.jsonl"]
)
def test_files_come_in(enqueue: Enqueue, shelf: Shelf, files: Path, file: str) -> None:
    ended = enqueue(files / file, "--name", "welcome", "--json")
    assert ended.code == 0, ended
    assert users(shelf) == USERS
    assert {job.name for job in shelf.jobs()} == {"welcome"}
    told = json.loads(ended.out)
    assert (told["rows"], told["added"], told["skipped"]) == (60, 60, 0)
