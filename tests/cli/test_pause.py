"""`chasqui pause` and `chasqui resume`, as people and programs see them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from chasquimq import wire
from tests.cli.kit import Chasqui
from tests.servers import DIALECTS, Servers

NOTE = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ by process \d+ on \S+"


def hold(chasqui: Chasqui, queue: str, jobs: int, group: str = "default") -> Any:
    """Jobs that a worker runs; answers what ends one of them."""
    client, stream = chasqui.server.client(), wire.Keys(queue).stream
    client.xgroup_create(stream, group, "0", mkstream=True)
    ids = [client.xadd(stream, {"d": "x"}) for _ in range(jobs)]
    client.xreadgroup(group, f"worker-{group}", {stream: ">"})
    return lambda: client.xack(stream, group, ids.pop())


def test_both_say_what_they_changed_and_may_be_said_twice(
    chasqui: Chasqui, queue_name: str
) -> None:
    first = chasqui.call("pause", queue_name, "--reason", "new [bold]schema\x1b[31m")
    assert first[:2] == (0, f"{queue_name} is paused; no worker has read it yet\n")
    assert f"there is no queue '{queue_name}' here: " in first.err, "a slip of the keyboard?"
    hold(chasqui, queue_name, 2)
    hold(chasqui, queue_name, 1, "second")  # which reads the others, too
    again = chasqui.call("pause", queue_name)
    assert (again.code, again.err) == (0, "")
    assert re.fullmatch(
        rf"{queue_name} was paused already, since {NOTE}: new \[bold\]schema\\x1b\[31m; "
        "5 jobs still run\n",
        again.out,
    )
    on = chasqui.call("resume", queue_name)
    assert (on.code, on.err) == (0, "")
    assert re.fullmatch(rf"{queue_name} goes on; it was paused since {NOTE}: new .*\n", on.out)
    assert chasqui.call("resume", queue_name) == (0, f"{queue_name} was not paused\n", "")


def test_programs_get_json(chasqui: Chasqui, queue_name: str) -> None:
    hold(chasqui, queue_name, 1)
    told = [
        json.loads(chasqui.call(verb, queue_name, "--json").out)
        for verb in ("pause", "pause", "resume", "resume")
    ]
    assert told == [
        {"queue": queue_name, "paused": True, "changed": True, "running": 1},
        {"queue": queue_name, "paused": True, "changed": False, "running": 1},
        {"queue": queue_name, "paused": False, "changed": True},
        {"queue": queue_name, "paused": False, "changed": False},
    ]


def test_a_wait_that_is_over_too_early_fails_and_the_queue_stays_paused(
    chasqui: Chasqui, queue_name: str
) -> None:
    hold(chasqui, queue_name, 2)
    ended = chasqui.call("pause", queue_name, "--wait", "--timeout", "300ms")
    assert (ended.code, ended.out) == (1, f"{queue_name} is paused; 2 jobs still run\n")
    assert ended.err.startswith(
        f"chasqui: after 0.3 s 2 jobs still run on {queue_name}, of worker-default (2); it stays"
    )
    told = chasqui.call("pause", queue_name, "--wait", "--timeout", "1ms", "--json")
    assert (told.code, json.loads(told.out)["running"]) == (1, 2)
    assert chasqui.server.client().exists(wire.Keys(queue_name).paused)


def test_a_wait_for_nothing_is_over_at_once(chasqui: Chasqui, queue_name: str) -> None:
    end = hold(chasqui, queue_name, 1)
    end()
    ended = chasqui.call("pause", queue_name, "--wait")
    assert ended == (0, f"{queue_name} is paused; nothing runs\n", "")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--timeout", "5s"), "--wait"),
        (("--wait", "--timeout", "soon"), "--timeout"),
        (("--reason", "x" * 1_001), "1000 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_is_paused(
    chasqui: Chasqui, queue_name: str, args: tuple[str, ...], words: str
) -> None:
    ended = chasqui.call("pause", queue_name, *args)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert not chasqui.server.client().exists(wire.Keys(queue_name).paused)


def test_in_a_terminal_one_sees_how_many_still_run(servers: Servers, queue_name: str) -> None:
    chasqui = Chasqui(servers.shared(DIALECTS[0]))  # a terminal has no dialect
    end = hold(chasqui, queue_name, 2)
    with chasqui.open("pause", queue_name, "--wait", columns=120) as terminal:
        terminal.until(f"{queue_name} is paused; 2 jobs still run")
        terminal.until(f"{queue_name}: 2 jobs still run")
        end()
        terminal.until(f"{queue_name}: 1 job still runs")
        end()
        assert terminal.end() == 0
        assert terminal.lines[-1] == f"{queue_name}: nothing runs any more"
