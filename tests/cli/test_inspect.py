"""`chasqui inspect`, as people and programs see it."""

from __future__ import annotations

import json

from chasquimq.sync import Queue
from tests.cli.golden import same
from tests.cli.kit import Chasqui

AGE = {r" +(\d+ ms|[\d.]+ s)\b": " AGE"}


def fill(chasqui: Chasqui, name: str) -> None:
    server = chasqui.server
    with Queue(name, redis_url=server.url, dialect=server.forced_dialect) as queue:
        for number in range(3):
            queue.add("welcome", {"user": number})
        queue.add("later", None, delay_ms=600_000)


def test_a_queue_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("inspect", queue_name)
    assert (ended.code, ended.err) == (0, "")
    same("inspect-piped", ended.out, {queue_name: "QUEUE", **AGE})


def test_a_queue_in_a_terminal(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    with chasqui.open("inspect", queue_name, columns=100) as terminal:
        assert terminal.end() == 0
        same("inspect-terminal", terminal.text, {queue_name: "QUEUE", **AGE})


def test_a_queue_as_json(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    [found] = [
        one
        for one in json.loads(chasqui.run("inspect", "--json").out)
        if one["queue"] == queue_name
    ]
    assert (found["stream_depth"], found["delayed_depth"], found["pending"]) == (3, 1, None)
