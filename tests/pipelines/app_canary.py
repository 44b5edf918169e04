"""Every command of the pipeline with a password by name, and tells what is seen of it.

`python -m tests.pipelines.app_canary FOLDER QUEUE`; $CHASQUI_REDIS_URL holds the address, $WRONG
one with a wrong password. The last line is JSON: every text that people may come to see.
"""

import io
import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from chasquimq import Job
from chasquimq.cli import main as chasqui
from tests.spark.app_canary import command_lines, pages_of, watched_session


def handle(job: Job) -> None:
    if job.data["n"] % 2:
        raise ValueError(f"no luck with {job.data['n']}")


def told(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = chasqui(["spark", *words])
    return code, out.getvalue()


def main(folder: Path, queue: str) -> None:
    spark = watched_session(folder)
    rows, lake, page = f"{folder}/rows.json", f"{folder}/lake", f"{folder}/report.html"
    Path(rows).write_text("".join(f'{{"n": {n}}}\n' for n in range(20)))
    target = "tests.pipelines.app_canary:handle"
    work = (target, "--queue", queue, "--max-attempts", "1", "--tasks", "2")
    seen: dict[str, str] = {}
    for name, words in {
        "enqueue": ("enqueue", queue, rows),
        "work": ("work", *work),
        "run": ("run", queue, "--lake", lake, "--available-now", "--out", page),
        "rollup": ("rollup", queue, "--lake", lake),
        "lifecycle": ("lifecycle", queue, "--lake", lake),
        "compact": ("compact", "--lake", lake),
        "triage": ("triage", queue),
        "replay": ("replay", queue, "--all", "--yes"),
        "again": ("work", *work),
        "purge": ("purge", queue, "--all", "--yes"),
    }.items():
        code, seen[name] = told(*words)
        seen[name] = f"{code}: {seen[name]}"
    seen |= pages_of(spark)
    seen["command lines"] = command_lines()
    os.environ["CHASQUI_REDIS_URL"] = os.environ["WRONG"]
    for words in (
        ("enqueue", queue, rows),
        ("work", *work),
        ("run", queue, "--lake", lake, "--available-now"),
        ("triage", queue),
        ("purge", queue, "--all", "--yes"),
    ):
        code, text = told(*words)
        seen[f"wrong {words[0]}"] = f"{code}: {text}"
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
