"""A Spark session that finds this Python, a Java, and shows no secrets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

# What Spark hides in plans, in its log of events and on its pages, by the name of the option.
REDACTED = "(?i)secret|password|token|access[.]?key|url"


def session(
    name: str = "chasqui", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one."""
    # Workers run the `python3` on PATH otherwise, which has none of our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    settings = {
        "spark.redaction.regex": REDACTED,
        "spark.sql.redaction.options.regex": REDACTED,
        **(conf or {}),
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
