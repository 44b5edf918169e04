"""The users of the page on users: each list is enough for its role, and has nothing to spare."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import redis
from redis.exceptions import NoPermissionError

from chasquimq import lua
from chasquimq.spark.act import task
from chasquimq.spark.read import plan, scan, walk
from chasquimq.spark.right import ASKED, acting, reading, working, writing
from chasquimq.spark.write import by_id, direct, staged
from chasquimq.store.exam.right import needed, talked
from chasquimq.wire import Keys
from tests.engine.desk import Desk
from tests.pipelines.exercise import EXERCISES as IN_SPARK  # in tests/pipelines/test_users.py
from tests.security.exercise import EXERCISES, Role, set_scene
from tests.security.spark_exercise import SPARK
from tests.security.users import WORD, Guest, commands, is_native, listed, roles, rules
from tests.servers import DialectServer

# What a role's exercise need not come to: a branch of a script for a fault in the middle of it.
SCRIPTS = {
    "producer": (
        *("open_stream", "add_own", "add_once", "add_unique", "schedule", "reschedule", "cancel"),
    ),
    "worker": (
        *("open_stream", "ack", "ack_held", "finish", "free", "retry", "bury", "renew"),
        *("abandoned", "started_upto", "requeue", "claim", "adopt", "give_back"),
        *("restore", "sweep", "leave"),
        *("promote", "due", "fire", "release", "counts"),
    ),
    "operator": (
        *("open_stream", "reschedule", "cancel", "replay", "rebury", "put_spec", "move_spec"),
        *("drop_spec", "see_spec", "list_specs", "fire", "sweep", "look", "counts", "see_pending"),
        *("count_dead", "drop_empty_spec", "drop_index", "drop_lock"),
    ),
    "reader": ("look", "counts", "see_spec", "list_specs"),
    "spark-reader": (*plan.SCRIPTS, *scan.SCRIPTS, walk.SCRIPT),
    "spark-writer": (*direct.SCRIPTS, *by_id.SCRIPTS, *staged.SCRIPTS),
    "spark-triage": ("open_stream", "spark_probe", *task.SCRIPTS),
    "spark-recover": ("spark_done", "spark_move", "spark_drop"),
}
SCRIPTS["spark-worker"] = SCRIPTS["worker"]
# What a script of a role has for others: who has no group asks for none, who has one borrows none.
OTHERS: dict[str, set[str]] = {
    "spark-writer": {"xinfo|groups"},
    "spark-triage": {"xinfo|groups"},
    "worker": {"xgroup|destroy"},
    "spark-worker": {"xgroup|destroy"},
}
TAKE = ("XREADGROUP", "GROUP", "default", "me", "STREAMS", Keys("mail").stream, ">")
WRITE = ("SET", Keys("mail").paused, "1")
SETTLE = ("XACK", Keys("mail").stream, "default", "1-1")
# What a role may not do even to its own queue.
BEYOND: dict[str, tuple[tuple[str | bytes, ...], ...]] = {
    "reader": (WRITE,),
    "spark-reader": (WRITE, TAKE, ("XADD", Keys("mail").stream, "*", "d", "x")),
    "spark-writer": (TAKE, SETTLE, ("XDEL", Keys("mail").stream, "1-1"), ("SCAN", "0")),
    "spark-triage": (TAKE, SETTLE, ("DEL", Keys("mail").stream), ("SCAN", "0")),
    "spark-recover": (TAKE, SETTLE, ("XDEL", Keys("mail").stream, "1-1")),
    "spark-worker": (("SCAN", "0"), ("HGETALL", Keys("mail").spec("tick"))),
}


def test_every_list_of_the_page_is_proven() -> None:
    assert roles() == [*EXERCISES, *SPARK, *IN_SPARK]


@pytest.mark.parametrize("role", [*EXERCISES, *SPARK])
async def test_a_list_is_enough_and_all_of_it_is_used(
    own_server: DialectServer, role: str, tmp_path: Path
) -> None:
    desk = Desk(own_server, "mail")
    scene, exercise = SPARK.get(role) or (partial(set_scene, role=role), EXERCISES[role])
    await scene(desk)
    guest = Guest(desk, role)
    await exercise(Role(desk, guest.url, tmp_path))
    assert guest.used() == listed(role, native=is_native(own_server, role))
    assert desk.redis.acl_log() == []


@pytest.mark.parametrize("role", SCRIPTS)
def test_a_list_has_every_command_that_scripts_of_the_role_may_come_to(role: str) -> None:
    for name in SCRIPTS[role]:
        needed = commands(lua.SOURCES[name]) - OTHERS.get(role, set())
        assert needed <= listed(role, native=True), name


def test_spark_doctor_asks_for_what_spark_has() -> None:
    keys = Keys("mail")
    read, write, act, work = (
        {name for name, _ in part(keys)} for part in (reading, writing, acting, working)
    )
    assert read == listed("spark-reader", native=True)
    # Without INFO a server that loses data is not told from others, without SMEMBERS it is not told
    # how far staging is: both go on.
    assert listed("spark-writer", native=True) == write | {*ASKED} | {"info", "smembers"}
    assert listed("spark-triage", native=True) == act | {"info"}
    # What a Worker needs `chasqui doctor` asks for.
    assert listed("spark-worker", native=True) == listed("worker", native=True) | work


@pytest.mark.parametrize("dialect", ["native", "portable"])
def test_doctor_asks_for_what_producers_and_workers_have(dialect: str) -> None:
    keys, native = Keys("mail"), dialect == "native"
    asked = {right for right, _ in (*needed(keys, dialect), *talked(keys))}  # type: ignore[arg-type]
    both = listed("producer", native=native) | listed("worker", native=native)
    assert asked - both == {"xinfo|stream"} - both
    assert both - asked == {"info"}  # without it the dialect is guessed, and nothing is lost


@pytest.mark.parametrize("role", roles())
def test_what_is_none_of_its_business_is_refused(own_server: DialectServer, role: str) -> None:
    client, native = own_server.client(), is_native(own_server, role)
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
        *BEYOND.get(role, ()),
    ):
        with pytest.raises(NoPermissionError):
            theirs.execute_command(*words)
        with pytest.raises(redis.RedisError):  # nor through a script
            theirs.evalsha(script, 0, *words)
    assert client.get("other") == b"theirs" and client.xlen(Keys("other").stream) == 1
    assert not client.exists(Keys("mail").paused)
