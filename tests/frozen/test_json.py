"""What commands print with `--json`, and how they end, on a queue with jobs in every state.

Guards "`--json` shapes, exit codes" of what must not change: a line for each key, with its types.
Commands of `spark` that need a session are in `tests/pipelines/test_json.py`. Machines differ in
what doctor finds: compared are the keys of findings that there are everywhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from chasquimq import QueueFullError
from chasquimq.cli.log import AsJson
from tests.cli.kit import Chasqui, Ended
from tests.engine.desk import Desk
from tests.frozen import scene
from tests.frozen.lists import committed, compare, lines_of
from tests.frozen.shapes import Printed
from tests.servers import DIALECTS, Servers
from tests.spark_redis.staging import Write

# In this order: those that look come first, those that change something go on from there.
COMMANDS = """\
inspect
inspect frozen --consumers
inspect other
watch --count 2 --interval-ms 50
watch frozen --count 2 --interval-ms 50
events frozen --no-follow
jobs list frozen
jobs list frozen --state waiting
jobs list frozen --state running
jobs list frozen --state delayed
jobs list frozen --state dead
jobs show frozen id-waits
jobs show frozen id-runs
jobs show frozen id-later
jobs show frozen id-died
jobs show frozen id-done
jobs show frozen {fired}
jobs show frozen no-such
dlq peek frozen
dlq peek frozen --payload
dlq peek frozen --full
dlq peek frozen --by error
repeatable list frozen
repeatable next frozen key-tick
repeatable next frozen --every 1h
add frozen works 1
add frozen works 1 --delay 1h
add frozen works 1 --job-id id-own
add frozen works 1 --dry-run
add frozen works --file jobs.jsonl
add frozen works --file jobs.jsonl --ids
pause frozen --reason deploy
pause frozen --wait --timeout 1ms
resume frozen
jobs reschedule frozen id-later --in 2h
jobs reschedule frozen no-such --in 2h
jobs cancel frozen id-later no-such
repeatable add frozen tack --every 2h --key key-new
repeatable add frozen tack --cron '0 4 * * *' --tz Europe/Berlin --missed fire_all:3
repeatable pause frozen key-new
repeatable resume frozen key-new
repeatable run frozen key-new
repeatable remove frozen key-new
repeatable remove frozen no-such
dlq export frozen dead.jsonl
dlq replay frozen --limit 1 --dry-run
dlq replay frozen --limit 1 --yes
dlq purge frozen --everything --dry-run
dlq purge frozen --everything --yes
dlq import frozen dead.jsonl --dry-run
dlq import frozen dead.jsonl
spark recover frozen
spark recover frozen --complete --dry-run
""".splitlines()

# Findings that doctor has on every machine, well or not.
EVERYWHERE = {"queue.dead", "server.version", "spark.versions"}


def test_what_they_print_is_what_the_list_says(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    printed = Printed()
    printed.add_documents("log line", [json.loads(AsJson().format(one)) for one in records()])
    with servers.private(DIALECTS[0]) as server:
        monkeypatch.chdir(tmp_path)
        chasqui, desk = Chasqui(server), Desk(server, "frozen")
        asyncio.run(set_scene(desk, chasqui, printed))
        fired = next(one.job_id for one in desk.events() if "@" in (one.job_id or ""))
        for words in COMMANDS:
            printed.add(words, call(chasqui, words.format(fired=fired)))
        printed.add_documents("doctor", found(chasqui, "doctor", "frozen"))
        printed.add_documents("spark doctor", found(chasqui, "spark", "doctor"))
        printed.add_documents("server", [first_line(chasqui, "server")])
    compare("json", printed.lines())


def call(chasqui: Chasqui, words: str) -> Ended:
    return chasqui.call(*shlex.split(words), "--json")


def found(chasqui: Chasqui, *words: str) -> list[Any]:
    findings = json.loads(chasqui.call(*words, "--json").out)
    return [[one for one in findings if one["code"] in EVERYWHERE]]


def first_line(chasqui: Chasqui, *words: str) -> Any:
    with chasqui.follow(*words, "--json") as process:
        assert process.stdout is not None
        return json.loads(process.stdout.readline())


def records() -> Iterator[logging.LogRecord]:
    log = logging.getLogger("chasquimq.worker")
    yield log.makeRecord(log.name, logging.INFO, "", 0, "a %s", ("message",), None)
    try:
        raise ValueError("wrong")
    except ValueError:
        extra = {"queue": "frozen"}
        yield log.makeRecord(
            log.name, logging.ERROR, "", 0, "failed", (), sys.exc_info(), extra=extra
        )


async def set_scene(desk: Desk, chasqui: Chasqui, printed: Printed) -> None:
    """A queue with jobs in every state, and another with a single one. What programs get of them
    as plain values is noted, and what is shown only while a worker runs."""
    await scene.add_jobs(desk)
    scene.leave_strange_entries(desk)
    scene.make_late(desk)
    async with scene.working(desk) as worker:
        healths = [worker.health(), desk.worker(print).health()]  # one runs, one does not
        printed.add_documents("Worker.health().to_dict()", [one.to_dict() for one in healths])
        printed.add("inspect frozen", await asyncio.to_thread(call, chasqui, "inspect frozen"))
    await scene.leave_jobs(desk)
    async with desk.queue() as queue:
        specs, dead = await queue.get_repeatable_jobs(), await queue.peek_dlq()
        printed.add_documents("Queue.get_repeatable_jobs()", [[one.to_dict() for one in specs]])
        printed.add_documents("Queue.peek_dlq()", [[row | {"payload": ""} for row in dead]])
        printed.add_documents("Queue.counts().to_dict()", [(await queue.counts()).to_dict()])
    async with Desk(desk.server, "other").queue() as queue:
        await queue.add("later", None, delay_ms=scene.HOUR_MS)
    Write(desk.server.url, desk.name, "run-open").stage(0, range(3))
    half = Write(desk.server.url, desk.name, "run-half", max_stream_len=1, on_full="fail")
    with suppress(QueueFullError):
        half.commit(half.stage(0, range(3)))


def test_every_command_with_json_is_in_a_list() -> None:
    commands = [line.split(" --json:")[0] for line in lines_of("commands") if " --json:" in line]
    lines = [*committed("json"), *committed("spark_json")]
    known = {re.split(r" (?=[.\[])", f"chasqui {line}")[0] for line in lines}
    assert [one for one in commands if one not in known] == []
