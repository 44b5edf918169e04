"""The session that programs and notebooks get by `session()`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from chasquimq.spark.session import REDACTED, session


def test_a_new_session_is_set_up(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.redaction.regex") == REDACTED
    assert spark.sparkContext.pythonExec == sys.executable
    noon = spark.sql("SELECT string(timestamp_millis(1794830400000)) AS noon").first()
    assert noon is not None and noon.noon == "2026-11-16 12:00:00"
    assert datetime.fromtimestamp(1_794_830_400, UTC).hour == 12


def test_a_running_session_stays_as_it_is_but_for_what_is_asked(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        again = session("another", conf={"spark.sql.shuffle.partitions": "3"})
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.session.timeZone") == "Europe/Berlin"
        assert again.conf.get("spark.sql.shuffle.partitions") == "3"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.shuffle.partitions", "2")
