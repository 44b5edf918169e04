"""What the commands of `chasqui spark` print with `--json`, compared with the committed list.

Guards "`--json` shapes" of what must not change, as `tests/frozen/test_json.py` does for all
commands that need no session.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from chasquimq import Job, UnrecoverableError
from tests.cli.kit import Chasqui
from tests.frozen.lists import compare
from tests.frozen.shapes import Printed
from tests.servers import DIALECTS, Servers

# In this order: each goes on from what the others have left.
COMMANDS = """\
spark enqueue frozen jobs.jsonl --name works --dry-run
spark enqueue frozen jobs.jsonl --name works
spark work tests.pipelines.test_json:handle --queue frozen --tasks 1
spark run frozen --lake lake --out report.html --available-now
spark lake frozen --lake lake --available-now
spark rollup --lake lake
spark rollup --lake lake --total
spark lifecycle --lake lake
spark compare --lake lake --at 2026-11-16T09:00:00Z --for 3650d
spark report --lake lake --out report.html
spark compact --lake lake
spark triage frozen
spark replay frozen --all --dry-run
spark purge frozen --all --yes
""".splitlines()


def handle(job: Job) -> None:
    if job.data["n"] == 1:
        raise UnrecoverableError(f"never, says {job.id}")


def test_what_they_print_is_what_the_list_says(
    spark: SparkSession, servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = Printed()
    (tmp_path / "jobs.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(5)))
    with servers.private(DIALECTS[0]) as server:
        monkeypatch.chdir(tmp_path)
        chasqui = Chasqui(server)
        for words in COMMANDS:
            # The session's processes have another address in their environment.
            ended = chasqui.call("--redis-url", server.url, *shlex.split(words), "--json")
            printed.add(words, ended)
    compare("spark_json", printed.lines())
