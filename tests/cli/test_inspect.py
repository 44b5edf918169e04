"""`chasqui inspect`, as people and programs see it."""

from __future__ import annotations

import json

import pytest

from chasquimq import wire
from chasquimq.sync import Queue
from tests.cli.golden import same
from tests.cli.kit import Chasqui
from tests.servers import DialectServer

TIMES = {
    r" +(\d+ ms|[\d.]+ s)(?= *│|$|\n)": " AGE",
    r"(?<=│) *(\d+ms|[\d.]+s)(?=│)": "AGE",
    r" +[\d.]+ KiB": " SIZE",
}


def fill(chasqui: Chasqui, name: str, jobs: int = 3) -> None:
    server = chasqui.server
    with Queue(name, redis_url=server.url, dialect=server.forced_dialect) as queue:
        for number in range(jobs):
            queue.add("welcome", {"user": number})
        queue.add("later", None, delay_ms=600_000)


def start_work(chasqui: Chasqui, name: str) -> None:
    """Two consumers as the server knows them, one of which leads."""
    client, keys = chasqui.server.client(), wire.Keys(name)
    client.xgroup_create(keys.stream, "default", "0", mkstream=True)
    client.xreadgroup("default", "worker-1", {keys.stream: ">"}, count=2)
    client.xgroup_createconsumer(keys.stream, "default", "worker-2")
    client.set(keys.promoter_lock, "worker-1", ex=60)
    client.set(keys.scheduler_lock, "s-elsewhere", ex=60)


def test_a_queue_in_a_pipe(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    ended = chasqui.call("inspect", queue_name)
    assert (ended.code, ended.err) == (0, "")
    same("inspect-piped", ended.out, {queue_name: "QUEUE", **TIMES})


def test_in_a_terminal_of_80_columns(own_server: DialectServer) -> None:
    chasqui = Chasqui(own_server)
    for name, jobs in (("mail", 3), ("billing-eu-west", 12), ("reports", 1)):
        fill(chasqui, name, jobs)
    start_work(chasqui, "mail")
    client = own_server.client()
    client.set(wire.Keys("reports").paused, "1")
    client.set("{chasqui:no{queue}:stream", "of ours")
    with (
        chasqui.open("inspect") as every,
        chasqui.open("inspect", "mail", "--consumers", rows=40) as one,
    ):
        assert (every.end(), one.end()) == (0, 0)
        same("inspect-all-terminal", every.text, TIMES)
        same("inspect-terminal", one.text, TIMES)


def test_workers_in_a_pipe_and_as_json(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    start_work(chasqui, queue_name)
    out = chasqui.call("inspect", queue_name, "--consumers").out
    table = [line.split() for line in out.partition("consumer  ")[2].splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in table[:2]] == [
        ("worker-1", "2", "promoter"),
        ("worker-2", "0", "-"),
    ]
    assert "scheduler: s-elsewhere, no consumer of this group" in out
    found = json.loads(chasqui.call("inspect", queue_name, "--json").out)
    assert (found["promoter"], found["scheduler"], found["pending"]) == (
        "worker-1",
        "s-elsewhere",
        2,
    )
    assert [one["name"] for one in found["consumers"]] == ["worker-1", "worker-2"]


def test_all_queues_as_json(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    every = json.loads(chasqui.call("inspect", "--json").out)
    [found] = [one for one in every if one["queue"] == queue_name]
    assert (found["stream_depth"], found["delayed_depth"], found["pending"]) == (3, 1, None)
    assert found["counts"]["waiting"] == 3


def test_another_group_has_not_been_created(chasqui: Chasqui, queue_name: str) -> None:
    fill(chasqui, queue_name)
    start_work(chasqui, queue_name)
    out = chasqui.call("inspect", queue_name, "--group", "others").out
    assert "group: others" in out and "0 (group not created)" in out


def test_a_queue_that_does_not_exist_is_told_with_the_nearest(
    chasqui: Chasqui, queue_name: str
) -> None:
    fill(chasqui, queue_name)
    wrong = queue_name[:-2].upper()
    for flags in ([], ["--json"]):
        ended = chasqui.call("inspect", wrong, *flags)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (
            f"chasqui: there is no queue {wrong!r} here: did you mean {queue_name!r}?\n"
        )


def test_a_server_without_queues(own_server: DialectServer) -> None:
    chasqui = Chasqui(own_server)
    ended = chasqui.call("inspect", "mail")
    assert ended.code == 1 and "the server has no queues at all" in ended.err
    ended = chasqui.call("inspect")
    assert ended.code == 0 and "(no queues)" in ended.out
    for number in range(11):
        own_server.client().xadd(wire.Keys(f"queue-{number}").stream, {"d": "x"})
    assert "`chasqui inspect` lists all 11" in chasqui.call("inspect", "zzz").err
    own_server.client().delete(wire.Keys("queue-10").stream, wire.Keys("queue-9").stream)
    assert "known: queue-0, queue-1" in chasqui.call("inspect", "zzz").err


def test_a_queue_of_which_only_a_result_is_left_is_empty(chasqui: Chasqui, queue_name: str) -> None:
    chasqui.server.client().set(wire.Keys(queue_name).result("a"), b"\xc0", ex=60)
    ended = chasqui.call("inspect", queue_name)
    assert ended.code == 0 and "stream depth" in ended.out


def test_a_key_in_the_way_is_told_and_hides_nothing_else(own_server: DialectServer) -> None:
    chasqui = Chasqui(own_server)
    fill(chasqui, "mail")
    fill(chasqui, "odd")
    own_server.client().set(wire.Keys("odd").dlq, "in the way")
    told = "{chasqui:odd}:dlq is a string, where a stream belongs"
    ended = chasqui.call("inspect", "odd")
    assert ended.code == 1
    assert "a string, not a stream" in ended.out and told in ended.out
    ended = chasqui.call("inspect")
    assert ended.code == 1
    rows = {line.split()[0]: line.split() for line in ended.out.splitlines()}
    assert rows["mail"][1] == "3" and rows["odd"][-1] == "broken" and "?" in rows["odd"]
    assert told in ended.out
    ended = chasqui.call("inspect", "odd", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["problems"] == [
        {"key": "{chasqui:odd}:dlq", "is_a": "string", "not_a": "stream"}
    ]


@pytest.mark.parametrize(
    "words", [["a{b"], [""], ["mail", "--grup", "x"], ["mail", "more"], ["--consumers"]]
)
def test_a_wrong_command_line_is_one(chasqui: Chasqui, words: list[str]) -> None:
    ended = chasqui.call("inspect", *words)
    assert (ended.code, ended.out) == (2, "") and ended.err


def test_a_server_that_cannot_be_reached_is_said_so(chasqui: Chasqui) -> None:
    ended = chasqui.call("inspect", "--redis-url", "redis://user:pw@127.0.0.1:1")  # not a secret
    assert (ended.code, ended.out) == (3, "")
    assert "cannot reach Redis at redis://" in ended.err and "pw" not in ended.err


@pytest.mark.parametrize(
    "command", [["jobs", "list"], ["repeatable", "list"], ["events", "--no-follow"], ["pause"]]
)
def test_a_queue_that_is_none_is_not_taken_for_an_empty_one(
    chasqui: Chasqui, queue_name: str, command: list[str]
) -> None:
    chasqui.call("add", queue_name, "welcome", "null")
    words = f"there is no queue '{queue_name}s' here: did you mean '{queue_name}'?"
    slip = chasqui.call(*command, f"{queue_name}s")
    assert (slip.code, words in slip.err) == (0, True)
    assert "there is no queue" not in chasqui.call(*command, queue_name).err
