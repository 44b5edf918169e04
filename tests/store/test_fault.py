"""What an error reply means: from the texts that the servers really send, also out of scripts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chasquimq.errors import AccessError, QueueFullError, StoreError, StoreUnavailableError
from chasquimq.server import Server
from chasquimq.store.resp import pack
from chasquimq.wire.fault import Fault, as_error, classify
from tests.servers import DialectServer
from tests.store.shelf import Shelf

AWAY, FULL, SCRIPT, GROUP, DIALECT, ACCESS, REFUSED = Fault
IN_SCRIPT = " script: 3c44b7a4, on @user_script:3."
SEEN = [  # (text, what it means) of what is hard to bring about here, or from older servers
    ("LOADING Redis is loading the dataset in memory", AWAY),
    ("BUSY Redis is busy running a script. You can only call SCRIPT KILL", AWAY),
    ("BUSY Redis is busy running a script. You can only call FUNCTION KILL", AWAY),
    ("TRYAGAIN Multiple keys request during rehashing of slot", AWAY),
    ("CLUSTERDOWN The cluster is down", AWAY),
    ("CLUSTERDOWN Hash slot not served", AWAY),
    ("MOVED 3999 127.0.0.1:6381", AWAY),
    ("ASK 3999 127.0.0.1:6381", AWAY),
    ("ERR Script attempted to access a non local key in a cluster node script: 1f, on @x:1.", AWAY),
    ("ERR Attempted to access a non local key in a cluster node script: on @user_script:1.", AWAY),
    ("UNKILLABLE Sorry the script already executed write commands", AWAY),
    ("ERR max number of clients reached", AWAY),
    ("UNBLOCKED the stream key no longer exists", GROUP),
    ("NOGROUP No such key 'q' or consumer group 'g' in XREADGROUP", GROUP),
    ("ERR Error running script (call to f_0): @user_script:3: OOM command not allowed", FULL),
    ("ERR Error running script: @user_script:3: READONLY You can't write", AWAY),
    ("ERR The user executing the script can't run this command or subcommand", ACCESS),
    ("ERR unknown command 'XACKDEL', with args beginning with: 'q' 'g' 'IDS' ", DIALECT),
    ("ERR Unknown Redis command called from script", DIALECT),
    ("ERR Unknown command called from script", DIALECT),
    ("BUSYGROUP Consumer Group name already exists", REFUSED),
    ("BUSYKEY Target key name already exists.", REFUSED),
    ("ERR syntax error", REFUSED),
    ("ERR injected fault", REFUSED),
    ("", REFUSED),
]


@pytest.mark.parametrize(("text", "fault"), SEEN)
def test_a_text_means_what_it_says(text: str, fault: Fault) -> None:
    assert classify(Exception(text)) is fault
    if not text.startswith("ERR Error running"):
        assert classify(Exception(text + IN_SCRIPT)) is fault


@pytest.mark.parametrize(
    ("fault", "text", "kind", "says"),
    [
        (AWAY, "LOADING x", StoreUnavailableError, "reading: LOADING x"),
        (SCRIPT, "NOSCRIPT x", StoreUnavailableError, "reading: NOSCRIPT x"),
        (GROUP, "NOGROUP x", StoreUnavailableError, "reading: NOGROUP x"),
        (FULL, "OOM x", QueueFullError, "out of memory (oom); nothing was written"),
        (ACCESS, "WRONGPASS x", AccessError, "check the user, its password and its ACL rules"),
        (REFUSED, "WRONGTYPE x", StoreError, "reading: WRONGTYPE x"),
    ],
)
def test_an_error_says_what_was_being_done(
    fault: Fault, text: str, kind: type[StoreError], says: str
) -> None:
    error = as_error(Exception(text), "reading")
    assert classify(Exception(text)) is fault
    assert type(error) is kind
    assert says in str(error)


# -- from real servers ---------------------------------------------------------------------------

FORWARD = Path(__file__).with_name("forward.lua").read_text()


async def both_ways(shelf: Shelf, *command: Any) -> list[tuple[str, Fault]]:
    """First word and meaning of the answers to a command, sent plainly and from a script."""
    pipe = await shelf.link.up()
    forms = pack(*command) + pack("EVAL", FORWARD, 0, *command)
    replies = await pipe.ask(forms, 2)
    assert all(isinstance(reply, Exception) for reply in replies), replies
    return [(str(reply).partition(" ")[0], classify(reply)) for reply in replies]


async def test_a_server_without_memory_is_full(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("maxmemory", 1)
    found = await both_ways(own_shelf, "XADD", "s", "*", "d", "x")
    assert found == [("OOM", FULL), ("OOM", FULL)]


async def test_a_replica_is_away_for_writers(own_shelf: Shelf) -> None:
    own_shelf.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
    found = await both_ways(own_shelf, "XADD", "s", "*", "d", "x")
    assert found == [("READONLY", AWAY), ("READONLY", AWAY)]


async def test_a_replica_that_lost_its_master_is_away(own_shelf: Shelf) -> None:
    own_shelf.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
    own_shelf.redis.config_set("replica-serve-stale-data", "no")
    assert await both_ways(own_shelf, "GET", "s") == [("MASTERDOWN", AWAY), ("MASTERDOWN", AWAY)]


async def test_a_master_without_replicas_is_away(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("min-replicas-to-write", 1)
    found = await both_ways(own_shelf, "XADD", "s", "*", "d", "x")
    assert found == [("NOREPLICAS", AWAY), ("NOREPLICAS", AWAY)]


async def test_a_server_that_cannot_save_is_away(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("save", "3600 1")
    shutil.rmtree(own_shelf.server.server.folder)
    own_shelf.redis.bgsave()
    while own_shelf.redis.info("persistence")["rdb_last_bgsave_status"] != "err":
        await asyncio.sleep(0.01)
    found = await both_ways(own_shelf, "XADD", "s", "*", "d", "x")
    own_shelf.redis.config_set("save", "")  # else it would refuse to stop, too
    assert found == [("MISCONF", AWAY), ("MISCONF", AWAY)]


async def test_a_server_busy_with_a_script_is_away(own_shelf: Shelf) -> None:
    own_shelf.redis.config_set("busy-reply-threshold", 10)
    other = await own_shelf.new_link()
    async with asyncio.TaskGroup() as tasks:
        endless = tasks.create_task(ends(other.ask("EVAL", "while true do end", 0)))
        await asyncio.sleep(0.1)
        try:
            assert await both_ways(own_shelf, "GET", "s") == [("BUSY", AWAY), ("BUSY", AWAY)]
        finally:
            await own_shelf.link.ask("SCRIPT", "KILL")
    assert "killed" in str(endless.result())


async def ends(asking: Any) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await asking
    return caught.value


async def test_a_server_that_loads_its_data_is_away(
    dialect_server: DialectServer, queue_name: str
) -> None:
    """It answers LOADING between loading this and that, so a client has to ask in time."""
    slow = {"key-load-delay": 200}
    with Server(dialect_server.server.binary, appendonly=True, config=slow) as server:
        shelf = Shelf(DialectServer("", server, None), queue_name)
        with shelf.redis.pipeline(transaction=False) as pipe:
            for number in range(2_500):
                pipe.set(number, "x")
            pipe.execute()
        shelf.redis.close()
        server.kill()
        said: list[str] = []
        async with asyncio.TaskGroup() as tasks:
            starting = tasks.create_task(asyncio.to_thread(server.start))
            while not starting.done():
                try:
                    await shelf.store.open()
                    break
                except StoreUnavailableError as error:
                    said.append(str(error))
                    await asyncio.sleep(0.001)
        await shelf.store.close()
    assert any("LOADING" in text for text in said), said


async def test_a_lost_group_and_a_wrong_type_are_told_apart(shelf: Shelf) -> None:
    shelf.redis.set(shelf.keys.dlq, "x")
    stream, dlq = shelf.keys.stream, shelf.keys.dlq
    assert await both_ways(shelf, "XPENDING", stream, "g", "-", "+", 1) == [("NOGROUP", GROUP)] * 2
    assert await both_ways(shelf, "XADD", dlq, "*", "d", "x") == [("WRONGTYPE", REFUSED)] * 2


async def test_a_script_nobody_loaded_is_to_be_loaded(shelf: Shelf) -> None:
    pipe = await shelf.link.up()
    (reply,) = await pipe.ask(pack("EVALSHA", "0" * 40, 0))
    assert (str(reply).partition(" ")[0], classify(reply)) == ("NOSCRIPT", SCRIPT)


@pytest.mark.parametrize("rules", [("~*", "+@all", "-xadd"), ("~other", "+@all")])
async def test_what_an_acl_forbids_is_a_matter_of_access(
    shelf: Shelf, new_user: Callable[..., str], rules: tuple[str, ...]
) -> None:
    narrow = await shelf.new_link(new_user(*rules))
    for command in (
        ("XADD", shelf.keys.stream, "*", "d", "x"),
        ("EVAL", FORWARD, 0, "XADD", shelf.keys.stream, "*", "d", "x"),
    ):
        (reply,) = await (await narrow.up()).ask(pack(*command))
        assert classify(reply) is ACCESS, reply
        with pytest.raises(AccessError):
            await narrow.ask(*command)


@contextmanager
def locked(like: Server) -> Iterator[Server]:
    with Server(like.binary, password="pw") as server:
        yield server


async def test_a_server_that_does_not_know_us_is_a_matter_of_access(
    dialect_server: DialectServer, queue_name: str
) -> None:
    with locked(dialect_server.server) as server:
        for user, word in (("", "wants a password"), (":no@", "WRONGPASS")):
            url = f"redis://{user}127.0.0.1:{server.port}"
            shelf = Shelf(DialectServer("", server, None), queue_name)
            with pytest.raises(AccessError, match=word):
                await shelf.new_store(url).open()
