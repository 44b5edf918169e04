"""What Spark would find here: which Java, which Python for the driver and for workers, and what
is installed for each. Facts for `chasqui spark doctor`; nothing is started but `--version`s.

Spark itself is not imported: it may be missing, which is a fact like any other.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from chasquimq.errors import ConfigError
from chasquimq.spark.java import Found, find_java, java_home

PACKAGES = ("pyspark", "pyarrow", "pandas", "hiredis", "msgspec", "grpcio", "chasquimq-py")
ASK_S = 30.0
# Run by the Python in question, which may have nothing of ours.
_ASK = """
import json, sys
from importlib import metadata, util

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

there = [name for name in ("chasquimq", "pyspark_chasqui") if util.find_spec(name) is not None]
packages = {name: version(name) for name in sys.argv[1:]}
print(json.dumps({"version": sys.version.split()[0], "packages": packages, "there": there}))
"""


class PythonFacts(msgspec.Struct, kw_only=True):
    program: str
    said_by: str  # this command, PYSPARK_PYTHON or PATH
    version: str | None = None  # None: it does not run, and `trouble` says why
    packages: dict[str, str | None] = {}
    there: list[str] = []  # which of our modules it can import
    trouble: str = ""

    @property
    def minor(self) -> str:
        """3.11 of 3.11.2: what driver and workers must have in common."""
        return ".".join((self.version or "").split(".")[:2])

    @property
    def has_source(self) -> bool:
        return {"chasquimq", "pyspark_chasqui"} <= {*self.there}


class SparkFacts(msgspec.Struct, kw_only=True):
    driver: PythonFacts
    workers: PythonFacts
    java: Found
    java_home: str | None = None  # what JAVA_HOME must say; None: as it is now is right
    spark_home: str | None = None
    spark_home_version: str | None = None


def look(environment: Mapping[str, str] = os.environ) -> SparkFacts:
    driver = _python(sys.executable, "this command", environment)
    java = find_java(environment)
    try:
        home = java_home(java)
    except ConfigError:  # there is none
        home = None
    spark_home = environment.get("SPARK_HOME")
    return SparkFacts(
        driver=driver,
        workers=_workers(driver, environment),
        java=java,
        java_home=home,
        spark_home=spark_home,
        spark_home_version=_spark_version(Path(spark_home)) if spark_home else None,
    )


def _workers(driver: PythonFacts, environment: Mapping[str, str]) -> PythonFacts:
    """What spark-submit, or a session that is not ours, would run workers with."""
    given = environment.get("PYSPARK_PYTHON")
    said_by = "PYSPARK_PYTHON" if given else "PATH"
    program = shutil.which(given or "python3", path=environment.get("PATH"))
    if program is None:
        trouble = "there is no such program"
        return PythonFacts(program=given or "python3", said_by=said_by, trouble=trouble)
    if program == driver.program:
        return msgspec.structs.replace(driver, said_by=said_by)
    return _python(program, said_by, environment)


def _python(program: str, said_by: str, environment: Mapping[str, str]) -> PythonFacts:
    facts = PythonFacts(program=program, said_by=said_by)
    try:
        ran = subprocess.run(
            [program, "-c", _ASK, *PACKAGES],
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=ASK_S,
        )
        told = json.loads(ran.stdout.splitlines()[-1])
    except OSError as error:
        facts.trouble = f"it cannot be started: {error.strerror}"
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        facts.trouble = "it does not answer as a Python 3 would"
    else:
        facts.version, facts.packages, facts.there = (
            told["version"],
            told["packages"],
            told["there"],
        )
    return facts


def _spark_version(home: Path) -> str | None:
    """By the name of its core: a folder may be called anything."""
    for jar in sorted(home.glob("jars/spark-core_*.jar")):
        found = re.search(r"_[\d.]+-(.+)\.jar", jar.name)
        if found:
            return found[1]
    return None
