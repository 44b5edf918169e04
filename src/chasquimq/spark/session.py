"""A Spark session that finds this Python and a Java, tells the time in UTC and shows no secrets.

Nobody needs it to read or write queues: any session will do. It is for programs and notebooks that
are run by themselves, not by spark-submit, and for our own commands.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from chasquimq.errors import ConfigError
from chasquimq.spark.java import find_java, java_home
from chasquimq.text import discreet

log = logging.getLogger("chasquimq.cli")

# Names of options and settings whose values Spark hides in plans, in its log of events and on its
# pages: its own list, and whatever is an address.
REDACTED = "(?i)secret|password|token|access[.]?key|url"
SETTINGS = {
    "spark.redaction.regex": REDACTED,
    "spark.sql.redaction.options.regex": REDACTED,
    # What a moment is called, and which day it belongs to, must not depend on the machine.
    "spark.sql.session.timeZone": "UTC",
}


def session(
    name: str = "chasqui", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one; `conf` holds for either.

    `master` is as for spark-submit, or `sc://host:port` of a Spark Connect server.
    """
    given = dict(conf or {})
    _refuse_passwords(given)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
    if _is_new(given, master):
        _find_this_python(given.get("spark.master") or master)
        _find_a_java()
        given = SETTINGS | given
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _refuse_passwords(given: Mapping[str, str]) -> None:
    """Settings stand on the command line of Spark's Java, where anybody on the machine reads
    them."""
    for name, value in given.items():
        if re.match(r"\s*(rediss?|unix)://", value) and discreet(value) != value:
            raise ConfigError(
                f"{name} holds a password, which everybody on this machine could read; set the "
                "variable in the environment of each node, or name a file by secretFile"
            )


def _is_new(given: Mapping[str, str], master: str | None) -> bool:
    """Will it be started here, by us? A server's settings are the server's, a running session's
    are whose it is."""
    remote = given.get("spark.remote") or os.environ.get("SPARK_REMOTE") or master or ""
    if remote.startswith("sc://"):
        return False
    return SparkContext._active_spark_context is None and SparkSession.getActiveSession() is None


def _find_this_python(master: str | None) -> None:
    """Workers run the `python3` on PATH otherwise, which has none of our packages. On a cluster the
    path of this one means nothing, and spark-submit has chosen one for both sides."""
    if "PYSPARK_GATEWAY_PORT" in os.environ or not (master or "local").startswith("local"):
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _find_a_java() -> None:
    if "PYSPARK_GATEWAY_PORT" in os.environ or SparkContext._gateway is not None:
        return  # it runs already
    found = find_java()
    home = java_home(found)
    if home is None:
        return
    if os.environ.get("JAVA_HOME") and found.passed_over:
        useless, why = found.passed_over[0]
        log.warning("%s %s; Spark runs on %s instead", useless, why, home)
    os.environ["JAVA_HOME"] = home
