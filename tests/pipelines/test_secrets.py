"""A password that the commands of the pipeline are given by name is in nothing that they leave."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chasquimq.server import Server
from tests.house.tree import ROOT
from tests.servers import DIALECTS, binary_for
from tests.spark.launch import launch
from tests.spark.test_secrets import PASSWORD, leaks, texts_in

APP = [sys.executable, "-m", "tests.pipelines.app_canary"]
WELL = ("enqueue", "work", "run", "rollup", "lifecycle", "compact", "triage", "replay", "purge")


@pytest.mark.timeout(300)
def test_no_command_shows_or_keeps_a_password(queue_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    folder.mkdir()
    with Server(binary_for(DIALECTS[0]), password=PASSWORD) as server:
        ended = launch(
            [*APP, str(folder), queue_name],
            folder,
            PYTHONPATH=str(ROOT),
            CHASQUI_REDIS_URL=server.url,
            WRONG=f"redis://:wr0ng-canary@127.0.0.1:{server.port}",  # not a secret
        )
    seen = ended.told
    assert [name for name in WELL if not seen[name].startswith("0: ")] == [], seen
    refused = [text for name, text in seen.items() if name.startswith("wrong ")]
    assert len(refused) == 5 and all("WRONGPASS" in text for text in refused), refused
    texts = {**seen, "stderr": ended.err, **texts_in(folder)}
    # Looked at: the log of Spark's events, the lake, its checkpoint, the figures, the report.
    for part in ("SparkListenerSQLExecutionStart", "<html"):
        assert any(part in text for text in texts.values()), part
    for part in ("report.html", ".parquet", "/offsets/", "/rollup/"):
        assert any(part in name for name in texts), sorted(texts)
    assert leaks(texts) == []
