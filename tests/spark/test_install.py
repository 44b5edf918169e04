"""Installed means usable: spark-submit finds format("chasqui"), also on the wheel's Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chasquimq import wire
from chasquimq.spark.java import find_java, java_home
from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, Servers
from tests.spark.launch import BIN, PATIENCE_S, QUICK, launch

pytestmark = pytest.mark.slow

APP = Path(__file__).with_name("app_submit.py")


@pytest.mark.timeout(300)
def test_a_submitted_application_needs_nothing_but_the_package(
    servers: Servers, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that has no Java but the one of the wheel."""
    server = servers.shared(DIALECTS[0])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    java = java_home(find_java({"PATH": "/nowhere"}))
    assert java is not None and java.startswith(str(tmp_path))
    settings = {**QUICK, "spark.ui.enabled": "false", "spark.local.dir": str(tmp_path)}
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    ended = launch(
        [str(BIN / "spark-submit"), "--master", "local[2]", *words, str(APP), queue_name],
        tmp_path,
        QUEUES=server.url,
        JAVA_HOME=java,
    )
    assert sorted(ended.told["users"]) == list(range(20))
    assert ended.told["java"].startswith("25.")
    assert ended.told["imported"] == []
    stream = server.client().xrange(f"{{chasqui:{queue_name}}}:stream")
    assert [fields[b"n"] for _, fields in stream] == [b"mail"] * 20
    assert json.dumps(ended.told) in ended.out


@pytest.mark.timeout(300)
def test_a_command_is_submitted_by_its_entry(
    servers: Servers, queue_name: str, tmp_path: Path
) -> None:
    server = servers.shared(DIALECTS[2])
    entry = Chasqui(server).call("spark", "entry").out.strip()
    assert Path(entry).is_file()
    (tmp_path / "users.csv").write_text("user,email\n" + "".join(f"{n},u{n}\n" for n in range(30)))
    settings = {**QUICK, "spark.ui.enabled": "false", "spark.local.dir": str(tmp_path)}
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = [str(BIN / "spark-submit"), "--master", "local[2]", *words, entry, "enqueue"]
    address = {"CHASQUI_REDIS_URL": server.url}
    told = launch([*submit, queue_name, "users.csv", "--json"], tmp_path, **address).told
    assert (told["rows"], told["added"]) == (30, 30)
    stream = server.client().xrange(f"{{chasqui:{queue_name}}}:stream")
    payloads = [wire.decode(wire.unpack_envelope(fields[b"d"]).payload) for _, fields in stream]
    assert payloads == [{"user": n, "email": f"u{n}"} for n in range(30)]
    ended = subprocess.run(
        [*submit, queue_name, "missing.csv"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **address},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ended.returncode == 1
    assert "Path does not exist" in ended.stdout + ended.stderr


@pytest.mark.timeout(300)
def test_doctor_starts_a_session_and_leaves_nothing(servers: Servers) -> None:
    server = servers.shared(DIALECTS[2])
    before = {*server.client().keys("*")}
    chasqui = Chasqui(server)
    chasqui.env["PYSPARK_PYTHON"] = sys.executable
    ended = chasqui.call("spark", "doctor", "--session", "--json", "--timeout", "280s")
    found = {one["code"]: one for one in json.loads(ended.out)}
    assert found["spark.session"]["facts"]["rows"] == 100, ended
    assert ended.code == 0
    assert {*server.client().keys("*")} == before
