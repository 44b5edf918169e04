"""The users of the page on users: each list is enough for its role, and has nothing to spare."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from chasquimq import lua
from chasquimq.spark.right import ASKED, acting, reading, working, writing
from chasquimq.store.exam.right import needed, talked
from chasquimq.wire import Keys
from tests.engine.desk import Desk
from tests.examples.page import ROOT, blocks
from tests.security.exercise import EXERCISES, Role, set_scene
from tests.servers import DialectServer

WORD = "a-long-password"  # not a secret
OPEN = {"auth", "config|resetstat"}  # what every user may, and what the test itself does
NATIVE = {
    "producer": {"xcfgset", "xinfo|stream"},
    "worker": {"xackdel", "xcfgset", "xinfo|stream"},
    "operator": {"xcfgset"},
}
# What a role's exercise need not come to: a branch of a script for a fault in the middle of it.
SCRIPTS = {
    "producer": (*("open_stream", "add_once", "add_unique", "schedule", "reschedule", "cancel"),),
    "worker": (
        *("open_stream", "ack", "ack_held", "finish", "free", "retry", "bury", "renew"),
        *("claim", "take_back", "adopt", "give_back", "restore", "sweep", "leave"),
        *("promote", "due", "fire", "release", "counts"),
    ),
    "operator": (
        *("open_stream", "reschedule", "cancel", "replay", "rebury", "put_spec", "move_spec"),
        *("drop_spec", "see_spec", "list_specs", "fire", "sweep", "look", "counts", "see_pending"),
        *("count_dead", "drop_empty_spec", "drop_index", "drop_lock"),
    ),
    "reader": ("look", "counts", "see_spec", "list_specs"),
}
CALL = re.compile(r"call\('([A-Z]+)'(?:, '([A-Z]+)')?")


def listed(role: str, *, native: bool) -> set[str]:
    """The commands of the page's list."""
    return {rule[1:] for rule in rules(role, native=native) if rule.startswith("+")}


def rules(role: str, *, native: bool) -> list[str]:
    """What the page says behind the user's name."""
    [block] = [b for b in blocks(ROOT / "docs/how-to/users.md") if f"SETUSER {role} " in b.text]
    more = NATIVE.get(role, set()) if native else set()
    return [*block.text.split()[3:], *(f"+{command}" for command in more)]


def commands(source: str) -> set[str]:
    """What a script calls, in every branch."""
    return {
        ("|".join(words) if words[0] in ("MEMORY", "XGROUP", "XINFO") else words[0]).lower()
        for words in CALL.findall(source)
    }


def is_native(server: DialectServer) -> bool:
    return server.name == "redis-native"


def used(desk: Desk) -> set[str]:
    stats = desk.redis.info("commandstats")
    return {name.removeprefix("cmdstat_") for name, one in stats.items() if one["calls"]} - OPEN


@pytest.mark.parametrize("role", EXERCISES)
async def test_a_list_is_enough_and_all_of_it_is_used(
    own_server: DialectServer, role: str, tmp_path: Path
) -> None:
    desk, native = Desk(own_server, "mail"), is_native(own_server)
    await set_scene(desk, role)
    desk.redis.execute_command("ACL", "SETUSER", role, *rules(role, native=native))
    url = own_server.url.replace("redis://", f"redis://{role}:{WORD}@")
    desk.redis.config_resetstat()
    await EXERCISES[role](Role(desk, url, tmp_path))
    assert used(desk) == listed(role, native=native)
    assert desk.redis.acl_log() == []


@pytest.mark.parametrize("role", SCRIPTS)
def test_a_list_has_every_command_that_scripts_of_the_role_may_come_to(role: str) -> None:
    unused = {"xinfo|groups"} if role == "producer" else set()  # it asks for no group
    for name in SCRIPTS[role]:
        assert commands(lua.SOURCES[name]) - unused <= listed(role, native=True), name


def test_spark_doctor_asks_for_every_command_that_its_scripts_may_come_to() -> None:
    keys = Keys("mail")
    asked = {name for part in (reading, writing, acting, working) for name, _ in part(keys)}
    for name, source in lua.SOURCES.items():
        if name.startswith("spark_"):
            assert commands(source) <= asked | {*ASKED}, name


@pytest.mark.parametrize("dialect", ["native", "portable"])
def test_doctor_asks_for_what_producers_and_workers_have(dialect: str) -> None:
    keys, native = Keys("mail"), dialect == "native"
    asked = {right for right, _ in (*needed(keys, dialect), *talked(keys))}  # type: ignore[arg-type]
    both = listed("producer", native=native) | listed("worker", native=native)
    assert asked - both == {"xinfo|stream"} - both
    assert both - asked == {"info"}  # without it the dialect is guessed, and nothing is lost


@pytest.mark.parametrize("role", EXERCISES)
def test_what_is_none_of_its_business_is_refused(own_server: DialectServer, role: str) -> None:
    client, native = own_server.client(), is_native(own_server)
    client.execute_command("ACL", "SETUSER", role, *rules(role, native=native))
    client.set("other", "theirs")
    client.xadd(Keys("other").stream, {"d": "x"})
    theirs = own_server.client(username=role, password=WORD)
    script = theirs.script_load(Path(__file__).with_name("anything.lua").read_text())
    everywhere = role in ("reader", "operator")  # whose pattern is that of all queues
    for words in (
        ("FLUSHALL",),
        ("CONFIG", "GET", "requirepass"),
        ("ACL", "LIST"),
        ("KEYS", "*"),
        ("DEBUG", "SLEEP", "0"),
        ("SHUTDOWN", "NOSAVE"),
        ("MONITOR",),
        ("GET", "other"),
        ("EVAL", "return 1", "0"),
        ("SUBSCRIBE", "elsewhere"),
        *(() if everywhere else (("XLEN", Keys("other").stream),)),
        *((("SET", Keys("mail").paused, "1"),) if role == "reader" else ()),
    ):
        with pytest.raises(NoPermissionError):
            theirs.execute_command(*words)
        with pytest.raises(redis.RedisError):  # nor through a script
            theirs.evalsha(script, 0, *words)
    assert client.get("other") == b"theirs" and client.xlen(Keys("other").stream) == 1
    assert not client.exists(Keys("mail").paused)
