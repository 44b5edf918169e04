"""Spark Connect: the package is needed where Spark runs Python, and not where the client is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import redis

from chasquimq.server import Server
from tests.servers import DIALECTS, binary_for
from tests.spark.launch import QUICK, launch

pytestmark = pytest.mark.slow

APP = Path(__file__).with_name("app_connect.py")
PASSWORD = "c4nary p@ss"  # not a secret


@pytest.mark.timeout(300)
def test_a_client_without_the_package_reads_writes_and_streams(
    queue_name: str, tmp_path: Path
) -> None:
    """Connect shows every option of every plan in its log of events: so it must hold no secret."""
    log = tmp_path / "log"
    log.mkdir()
    settings = {
        **QUICK,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{log}",
        "spark.eventLog.compress": "false",
        "spark.local.dir": str(tmp_path / "local"),
    }
    events = f"{{chasqui:{queue_name}}}:events"
    with Server(binary_for(DIALECTS[0]), password=PASSWORD) as server:
        with redis.Redis.from_url(server.url) as client:
            for number in range(7):
                client.xadd(events, {"e": "waiting", "id": f"job-{number}", "ts": "1794834741674"})
        ended = launch(
            [sys.executable, str(APP), str(tmp_path), queue_name, json.dumps(settings)],
            tmp_path,
            QUEUES=server.url,
        )
        with redis.Redis.from_url(server.url) as client:
            assert client.xlen(f"{{chasqui:{queue_name}}}:stream") == 20
    told = ended.told
    assert told["kind"] == "pyspark.sql.connect.session"
    assert told["users"] == list(range(20))
    assert told["ended"] is True
    assert told["seen"] == [f"job-{number}" for number in range(7)]
    assert "did you mean 'fetchSize'?" in told["refused"]
    seen = "".join(path.read_text(errors="replace") for path in log.rglob("*") if path.is_file())
    assert "QUEUES" in seen and queue_name in seen, "that is where options are shown"
    for text in (seen, ended.out, ended.err):
        assert PASSWORD not in text and quote(PASSWORD, safe="") not in text
