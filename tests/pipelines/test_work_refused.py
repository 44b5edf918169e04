"""What a SparkWorker refuses, by whom it is refused, and what no message says."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from chasquimq import ConfigError, Job, wire
from chasquimq.errors import AccessError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.spark.task.target import load
from chasquimq.spark.work import SparkWorker
from tests.pipelines.test_work import HERE, LATER, Place, handle, quietly
from tests.servers import DIALECTS, Servers, binary_for

PASSWORD = "c4nary-word"  # not a secret


@pytest.fixture
def native(servers: Servers, queue_name: str) -> Place:
    return Place(servers.shared(DIALECTS[0]), queue_name)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"concurency": 2}, "SparkWorker has no option 'concurency'; did you mean 'concurrency'?"),
        ({"urlEnv": "REDIS_URL"}, "SparkWorker has no option 'urlEnv'; did you mean 'url_env'?"),
        ({"tasks": 0}, "tasks must be from 1 to 100000, got 0"),
        ({"share": 0}, "share must be from 1"),
        ({"max_attempts": 0}, "max_attempts must be from 1"),
        ({"dlq_on_full": "drop"}, "dlq_on_full must be one of warn, trim; got 'drop'"),
        ({"url": "redis://:pass@host"}, "url holds a password"),  # not a secret
        ({"url_env": "redis://host"}, "urlEnv is the name of an environment variable"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_the_driver(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        SparkWorker("mail", handle, **options)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("handle", "names no handler: write it as package.module:name"),
        ("tests/spark/test_work.py:handle", "names no handler"),
        ({}, "this mapping has no handlers"),
        (42, "must be a function, got int"),
    ],
)
def test_a_handler_that_is_none_is_refused_by_the_driver(handler: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        SparkWorker("mail", handler)


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (f"{HERE}:handel", "has no 'handel'; did you mean 'handle'?"),
        (f"{HERE}:worker", "is a Worker; name the handler itself"),
        (f"{HERE}:Place", "is a class; name the handler itself"),
        (f"{HERE}:HERE", "must be a function, got str"),
        ("nowhere.tasks:handle", "there is no module 'nowhere' where tasks run"),
    ],
)
def test_a_name_that_leads_to_no_handler(target: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(target)
    assert says in str(refused.value)


def test_it_is_said_by_the_task_and_nothing_is_taken(spark: SparkSession, native: Place) -> None:
    native.add(["good"])
    with pytest.raises(Exception, match=r"CMQ-004.* did you mean 'handle'"):
        native.work(f"{HERE}:handel", tasks=1).run(spark)
    assert native.client.xlen(native.keys.stream) == 1


def test_a_handler_that_cannot_be_sent_is_refused(spark: SparkSession, native: Place) -> None:
    held = threading.Lock()

    def handle_alone(job: Job) -> None:
        with held:
            pass

    with pytest.raises(ConfigError, match="give it by name"):
        native.work(handle_alone).run(spark)


def test_a_server_that_is_away_is_said_before_spark_starts() -> None:
    nowhere = SparkWorker("mail", handle, url="redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailableError, match="cannot reach Redis"):
        nowhere.run(None)  # type: ignore[arg-type] # not needed


def test_a_password_is_in_no_plan_and_no_message(
    spark: SparkSession, queue_name: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    work = SparkWorker(queue_name, quietly, secret_file=str(secret), tasks=1, backoff=LATER)
    with Server(binary_for(DIALECTS[0]), password=PASSWORD) as server:
        with redis.Redis.from_url(server.url) as client:
            client.xadd(wire.Keys(queue_name).stream, {"d": b"\xc1"})
        secret.write_text(server.url)
        rows = work.run(spark)
        assert [row.outcome for row in rows.collect()] == ["buried"]
        secret.write_text(f"redis://:wr0ng-canary@127.0.0.1:{server.port}")  # not a secret
        with pytest.raises(AccessError) as refused:
            work.run(spark)
    told = [rows._jdf.queryExecution().toString(), str(refused.value), repr(work._where)]
    told.append(str(cloudpickle.dumps(work)))
    for text in told:
        assert "canary" not in text and PASSWORD not in text
