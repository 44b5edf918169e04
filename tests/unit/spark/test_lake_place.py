"""A lake is refused where a rename is not atomic, without a JVM and without a network."""

from __future__ import annotations

from typing import Any, cast

import pytest

from chasquimq.cli import main
from chasquimq.cli.spark.place import the_lake
from chasquimq.errors import ConfigError
from chasquimq.spark.lake.files import Files
from chasquimq.spark.lake.layout import check_atomic

STORES = (
    *("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl"),
    *("oss", "obs", "cos", "cosn", "tos", "bos", "ks3", "swift", "oci", "dbfs", "S3A"),
)


@pytest.mark.parametrize("scheme", STORES)
@pytest.mark.parametrize("rest", ["://bucket/lake", ":/bucket/lake"])
def test_an_object_store_is_refused_and_the_reason_told(scheme: str, rest: str) -> None:
    place = scheme + rest
    for refuse in (
        lambda: the_lake(place, None),
        lambda: the_lake(place, "k8s://x"),
        lambda: Files(cast(Any, None), place),
    ):
        with pytest.raises(ConfigError, match=r"not atomic.*rows would be lost.*hdfs://"):
            refuse()


def test_what_is_told_of_an_object_store_holds_no_secret() -> None:
    with pytest.raises(ConfigError) as refused:
        check_atomic("s3a://key:hunter2@bucket/lake")  # not a secret
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "place", ["/data/lake", "lake", "file:/data/lake", "hdfs://n/lake", "viewfs://n/l", "s3/lake"]
)
def test_disks_and_hdfs_are_fine(place: str) -> None:
    check_atomic(place)
    assert the_lake(place, "yarn") == place


@pytest.mark.parametrize("command", ["lake", "run", "compact", "report", "lifecycle"])
def test_the_commands_refuse_it_before_spark_starts(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHASQUI_LAKE", "s3a://bucket/lake")
    queue = ["mail"] if command in ("lake", "run") else []
    assert main(["spark", command, *queue]) == 2
    assert "not atomic" in capsys.readouterr().err
