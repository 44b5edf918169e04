"""A password changes while jobs run, on a plain server, behind Sentinels and in a cluster."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import redis

from chasquimq import Queue, Worker
from chasquimq.address import Credentials
from chasquimq.errors import AccessError, ConfigError, StoreError
from chasquimq.server import Server
from tests.ha.crowd import Crowd
from tests.ha.kit import Cluster, Watched, client
from tests.servers import Dialect, binary_for

USER = "app"
FIRST, SECOND = "first-canary", "second-canary"  # not a secret


class Vault:
    """Holds the password of today, and knows who asked for it."""

    def __init__(self, *servers: Server) -> None:
        self.asked: list[str | None] = []
        self.odd: list[Any] = []  # given first, and last first
        self._clients = [client(server.port) for server in servers]
        self._word = ""
        self.rotate(FIRST)

    def __call__(self, host: str | None) -> Credentials:
        self.asked.append(host)
        return self.odd.pop() if self.odd else (USER, self._word)

    def rotate(self, word: str) -> int:
        """A new password everywhere; who came in with the old one is thrown out. How many."""
        self._word = word
        rule = (USER, "reset", "on", f">{word}", "~*", "&*", "+@all")
        for each in self._clients:
            each.execute_command("ACL", "SETUSER", *rule)
        return sum(_throw_out(each) for each in self._clients)


def _throw_out(server: redis.Redis) -> int:
    return int(server.execute_command("CLIENT", "KILL", "USER", USER))


async def outlived(url: str, name: str, vault: Vault) -> None:
    crowd = Crowd(url, name, vault)
    async with crowd.at_work():
        await crowd.goes_on()
        assert vault.rotate(SECOND) >= 4  # of the queue, and of the worker: to read, settle, renew
        await crowd.goes_on()
    assert max(crowd.runs.values()) == 1
    await refused(url, name, lambda host: (USER, FIRST))


async def refused(url: str, name: str, old: Callable[[str | None], Credentials]) -> None:
    """Who comes with the old password is told so, and not what it was."""
    queue = Queue(name, redis_url=url, credential_provider=old)
    worker = Worker(name, lambda job: None, redis_url=url, credential_provider=old)
    for door in (queue.add("a", 1), worker.run()):
        with pytest.raises(AccessError, match="password") as caught:
            await door
        assert FIRST not in "".join(traceback.format_exception(caught.value))
    await queue.close()


@pytest.mark.parametrize("kind", ["sentinel", "cluster"])
async def test_who_has_no_auth_does_not_make_us_log_the_password(
    dialect: Dialect,
    kind: str,
    queue_name: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such a server answers an unknown command by repeating its arguments."""
    monkeypatch.setenv("SENTINELS_WORD", FIRST)
    config = {"rename-command": ("AUTH", "elsewhere"), "cluster-enabled": "yes"}
    with Server(binary_for(dialect), config=config) as server, caplog.at_level(logging.DEBUG):
        url = f"redis+{kind}://{USER}:{FIRST}@127.0.0.1:{server.port}"
        url += "/m?sentinel_password_env=SENTINELS_WORD" if kind == "sentinel" else ""
        with pytest.raises(StoreError, match="does not take AUTH") as caught:
            await Queue(queue_name, redis_url=url).add("a", 1)
    assert FIRST not in "".join(traceback.format_exception(caught.value))
    assert FIRST not in caplog.text


@pytest.mark.timeout(120)
async def test_a_plain_server(dialect: Dialect, queue_name: str) -> None:
    with Server(binary_for(dialect)) as server:
        vault = Vault(server)
        await outlived(server.url, queue_name, vault)
        assert set(vault.asked) == {f"127.0.0.1:{server.port}"}


@pytest.mark.timeout(120)
async def test_odd_answers_while_jobs_run(
    dialect: Dialect, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every connection is made anew meanwhile, that of the leases as well."""
    odd = [None, FIRST, (USER, FIRST, 3), FIRST.encode(), 7, (USER, None), iter((USER, FIRST))]
    with Server(binary_for(dialect)) as server:
        vault = Vault(server)
        crowd = Crowd(server.url, queue_name, vault)
        async with crowd.at_work():
            await crowd.goes_on()
            vault.odd = odd * 3
            assert vault.rotate(SECOND) >= 4
            await crowd.goes_on()
            assert not vault.odd
    assert max(crowd.runs.values()) == 1
    assert "it must return (username, password)" in caplog.text and FIRST not in caplog.text


@pytest.mark.timeout(120)
async def test_behind_sentinels(sentinels: Watched, queue_name: str) -> None:
    vault = Vault(sentinels.master, sentinels.replica)
    await outlived(sentinels.url, queue_name, vault)
    assert set(vault.asked) == {f"127.0.0.1:{sentinels.master.port}"}  # Sentinels have their own


@pytest.mark.timeout(120)
async def test_in_a_cluster(nodes: Cluster, queue_name: str) -> None:
    """Where the nodes that are asked want to know who asks."""
    vault, owner = Vault(*nodes.nodes), nodes.owner(f"{{chasqui:{queue_name}}}:stream")
    for node in nodes.nodes:
        client(node.port).execute_command("ACL", "SETUSER", "default", "-cluster|slots")
    await outlived(nodes.url, queue_name, vault)
    assert f"127.0.0.1:{owner.port}" in vault.asked


async def test_a_password_of_the_sentinels_that_is_no_text(
    queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SENTINELS_WORD", f"{FIRST}\udcff")
    url = "redis+sentinel://127.0.0.1:1/m?sentinel_password_env=SENTINELS_WORD"
    with pytest.raises(ConfigError, match="SENTINELS_WORD holds a lone surrogate") as caught:
        await Queue(queue_name, redis_url=url).add("a", 1)
    assert FIRST not in "".join(traceback.format_exception(caught.value))
