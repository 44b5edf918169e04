"""What a session is started with, without starting one; `tests/spark/test_session.py` does."""

from __future__ import annotations

import os
import re
import sys

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark import session

PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PYTHONS, "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.setenv(name, "")  # so that what the code sets is undone
        monkeypatch.delenv(name)


@pytest.mark.parametrize("master", [None, "local", "local[2,4]", "local-cluster[2,1,1024]"])
def test_workers_on_this_machine_are_run_by_this_python(master: str | None) -> None:
    session._find_this_python(master)
    assert [os.environ[name] for name in PYTHONS] == [sys.executable] * 2


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h"])
def test_on_a_cluster_the_path_of_this_python_means_nothing(master: str) -> None:
    session._find_this_python(master)
    assert not any(name in os.environ for name in PYTHONS)


def test_a_python_that_was_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/chosen")
    session._find_this_python("local")
    assert os.environ["PYSPARK_PYTHON"] == "/chosen"


def test_under_spark_submit_nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    session._find_this_python("local")
    session._find_a_java()
    assert not any(name in os.environ for name in PYTHONS)
    assert os.environ["JAVA_HOME"] == "/nowhere"


def test_a_connect_server_has_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    assert session._is_new({}, "local[2]") and session._is_new({"spark.remote": "local"}, None)
    assert not session._is_new({}, "sc://h:15002")
    assert not session._is_new({"spark.remote": "sc://h"}, None)
    monkeypatch.setenv("SPARK_REMOTE", "sc://h")
    assert not session._is_new({}, None)


def test_a_password_among_the_settings_is_refused_before_anything_is_started() -> None:
    """It would stand on a command line."""
    for url in ("redis://:c4nary@h", "rediss://u:c4nary@h:1/2?insecure=1"):  # not a secret
        with pytest.raises(ConfigError, match=r"spark\.executorEnv\.REDIS holds a password") as no:
            session.session(conf={"spark.executorEnv.REDIS": url})
        assert "c4nary" not in str(no.value)
    session._refuse_passwords({"spark.executorEnv.REDIS": "redis://h", "spark.app": "a:b@c"})


@pytest.mark.parametrize(
    "name", ["url", "urlEnv", "secretFile", "spark.executorEnv.CHASQUI_REDIS_URL", "db.password"]
)
def test_names_whose_values_are_hidden(name: str) -> None:
    assert re.search(session.REDACTED, name)


@pytest.mark.parametrize("name", ["queue", "view", "spark.master", "spark.app.name"])
def test_names_whose_values_are_shown(name: str) -> None:
    assert not re.search(session.REDACTED, name)
