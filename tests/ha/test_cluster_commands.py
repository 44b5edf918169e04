"""The command on a cluster: each verb finds the queue's node, and what is about all queues asks all
nodes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from chasquimq import wire
from chasquimq.address import read_url
from chasquimq.cli import watch
from tests.cli.crew import Crew, page, until
from tests.cli.kit import Chasqui, Ended
from tests.ha.kit import Cluster, Home, client

APP = """
import os
from chasquimq import Worker

async def handle(job):
    return job.data

worker = Worker(
    os.environ["CREW_QUEUE"], handle, redis_url=os.environ["CHASQUI_REDIS_URL"], store_results=True
)
"""


class Desk:
    """The command, on queues that lie on several nodes."""

    def __init__(self, nodes: Cluster, name: str) -> None:
        self.homes = [Home(nodes, f"{name}-{number}") for number in range(6)]
        assert len({nodes.owner(home.key).port for home in self.homes}) == 3
        self.names = [home.queue for home in self.homes]
        self._chasqui = Chasqui(self.homes[0])  # type: ignore[arg-type]

    def call(self, *words: str) -> Ended:
        return self._chasqui.call(*words)

    def __call__(self, *words: str) -> str:
        ended = self.call(*words)
        assert ended.code == 0, ended
        return ended.out

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def doctor(self, *words: str) -> list[dict[str, Any]]:
        """All findings, whatever the exit code: how well this machine is changes it."""
        ended = self.call("doctor", "--quick", "--json", *words)
        found: list[dict[str, Any]] = json.loads(ended.out)
        return found


@pytest.fixture
def desk(ring: Cluster, queue_name: str) -> Desk:
    return Desk(ring, queue_name)


def test_verbs_of_one_queue_find_its_node(desk: Desk) -> None:
    for home in desk.homes[:4]:
        queue = home.queue
        desk("add", queue, "mail", "[1]")
        desk("add", queue, "mail", "[2]", "--delay", "1h", "--job-id", "later")
        assert desk.json("inspect", queue)["stream_depth"] == 1
        assert "later" in desk("jobs", "list", queue, "--state", "delayed")
        assert "[2]" in desk("jobs", "show", queue, "later")
        desk("pause", queue)
        desk("resume", queue)
        desk("repeatable", "add", queue, "tick", "--every", "1h", "--start-after", "1h")
        assert len(desk.json("repeatable", "list", queue)) == 1
        desk("dlq", "peek", queue)
        desk("events", queue, "--from", "1h", "--count", "1")
        assert desk.json("spark", "recover", queue)["runs"] == []
        assert client(home.nodes.owner(home.key).port).xlen(home.key) == 1


def test_inspect_watch_and_doctor_ask_all_nodes(desk: Desk) -> None:
    for queue in desk.names:
        desk("add", queue, "mail", "1")
    mine = set(desk.names)
    assert mine <= {one["queue"] for one in desk.json("inspect")}
    seen = [json.loads(line) for line in desk("watch", "--count", "2", "--json").splitlines()]
    assert all(mine <= {one["queue"] for one in look["queues"]} for look in seen)
    one = json.loads(desk("watch", desk.names[0], "--count", "1", "--json"))
    assert one["queue"] == desk.names[0]

    found = desk.doctor()
    nodes = {f"127.0.0.1:{node.port}" for node in desk.homes[0].nodes.masters()}
    assert {one["facts"]["node"] for one in found if one["code"] == "server.version"} == nodes
    assert {one["facts"]["node"] for one in found if one["code"] == "server.rights"} == nodes
    assert mine <= {one["queue"] for one in found}
    assert "server.cluster" not in {one["code"] for one in found}
    few = desk.doctor(*desk.names[:2])
    assert {one["queue"] for one in few} == {None, *desk.names[:2]}


def test_doctor_tries_rights_and_repairs_on_the_node_of_a_queue(desk: Desk) -> None:
    """A user who may not ask what it may do tries it, on keys that the node would have."""
    home = desk.homes[0]
    here, keys = home.client(), wire.Keys(home.queue)
    here.xgroup_create(keys.stream, "default", mkstream=True)
    here.set(keys.didx("gone"), b"1234 front")
    looker = "ACL", "SETUSER", "looker", "on", ">looker", "~*", "&*", "+@all", "-acl|dryrun"
    for node in home.nodes.nodes:
        client(node.port).execute_command(*looker)
    url = home.url.replace("://", "://looker:looker@")  # not a secret
    found = desk.doctor("--redis-url", url)
    rights = [one for one in found if one["code"] == "server.rights"]
    assert len(rights) == 3 and all("tried without effect" in one["text"] for one in rights)

    desk.call("doctor", home.queue, "--fix", "--yes")
    assert here.exists(keys.didx("gone")) == 0
    for queues, nodes in (((home.queue,), 1), ((), 3)):
        told = json.loads(desk.call("spark", "doctor", *queues, "--json").out)
        for code in ("server.version", "spark.rights"):
            assert len({one["facts"]["node"] for one in told if one["code"] == code}) == nodes


def here_port(home: Home) -> int:
    port = home.nodes.owner(home.key).port
    assert port is not None
    return port


def test_a_node_that_is_named_alone_is_told_how_to_name_them_all(desk: Desk) -> None:
    alone = f"redis://127.0.0.1:{here_port(desk.homes[0])}"
    [one] = [one for one in desk.doctor("--redis-url", alone) if one["code"] == "server.cluster"]
    assert one["fix"] == f"export CHASQUI_REDIS_URL={alone.replace('://', '+cluster://')}"


async def test_watch_finds_a_queue_again_that_has_moved(desk: Desk) -> None:
    home = desk.homes[0]
    home.client().xadd(home.key, {"d": b"x"})
    view = watch.View(None, 1, "here")
    watcher = watch.Watcher(read_url(home.url), None, "default", view)
    surveying = asyncio.create_task(watcher.keep_surveying(await watcher.open()))
    try:
        await watcher.look()
        assert home.queue in {one.last.queue for one in view.every()}
        await asyncio.to_thread(home.move)
        await watcher.look()
        assert view.away
        async with asyncio.timeout(30):
            while view.away:
                await asyncio.sleep(0.05)
                await watcher.look()
        assert home.queue in {one.last.queue for one in view.every()}
    finally:
        surveying.cancel()
        await watcher.close()


@pytest.mark.timeout(180)
def test_worker_metrics_and_watch_go_on_when_a_node_is_killed(
    nodes: Cluster, queue_name: str, tmp_path: Path
) -> None:
    home = Home(nodes, queue_name)
    chasqui = Chasqui(home)  # type: ignore[arg-type]
    (tmp_path / "app.py").write_text(APP)
    args = ("--processes", "2", "--metrics", "127.0.0.1:0")
    with Crew(
        chasqui, home.queue, *args, target="app:worker", folder=tmp_path, out=tmp_path
    ) as crew:
        port = crew.begins().port()
        assert ran(chasqui, home, "before")
        until(lambda: f'queue="{home.queue}"' in page(port, "/metrics")[1])
        with chasqui.follow("watch", "--json", "--interval-ms", "200") as watching:
            shown(watching, home.queue)
            nodes.owner(home.key).kill()
            until(lambda: ran(chasqui, home, "after"))
            until(lambda: page(port, "/readyz")[0] == 200)
            shown(watching, home.queue, after="no_answer_since")
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


def ran(chasqui: Chasqui, home: Home, job: str) -> bool:
    """Add a job with this id, and see its result; False while the queue's node is away."""
    if chasqui.call("add", home.queue, "mail", "1", "--job-id", job).code:
        return False
    with suppress(redis.RedisError, AssertionError):
        return bool(until(lambda: home.client().get(wire.Keys(home.queue).result(job))))
    return False


def shown(watching: subprocess.Popen[bytes], queue: str, after: str = "") -> None:
    """Read on until a picture has the queue, behind one that has this word."""
    assert watching.stdout is not None
    for line in watching.stdout:
        look = json.loads(line)
        if after:
            after = "" if after in look else after
        elif queue in [one["queue"] for one in look.get("queues", ())]:
            return
    raise AssertionError(f"{queue} was not shown")
