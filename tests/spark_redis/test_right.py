"""What a user needs for reads and for writes: the list is what the code does, and is enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from chasquimq import lua
from chasquimq.address import read_url
from chasquimq.spark import right
from chasquimq.spark.client import Client
from chasquimq.spark.options import View
from chasquimq.spark.source import ChasquiSource
from chasquimq.wire import Keys
from tests.cli.clinic import Clinic
from tests.house.tree import SOURCE
from tests.servers import DialectServer
from tests.spark_redis.writing import Shelf, Writing, batches, numbered

READ = {name for name, _ in right.reading(Keys("mail"))}
ACT = {name for name, _ in right.acting(Keys("mail"))}
WORK = {name for name, _ in right.working(Keys("mail"))}
WRITE = {name for name, _ in right.writing(Keys("mail"))} | {*right.ASKED}
IN_LUA = re.compile(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?")
IN_PYTHON = re.compile(r'"([A-Z]{3,})"(?:, "(INFO|STREAM|GROUPS|CREATE|DESTROY)")?')
CONTAINERS = {"XINFO", "XGROUP", "COMMAND"}
NO_COMMANDS = {"COUNT", "MATCH", "WRONGTYPE"}
DISPENSABLE = {"info"}  # where an ACL keeps it from us, we do without
OPERATORS = {"recover.py"}  # what `chasqui spark recover` needs is no executor's affair


def used(folder: Path) -> set[str]:
    """What the code of a folder, and the scripts that it names, ask the server for."""
    rows: list[tuple[str, str]] = []
    for path in folder.glob("*.py"):
        text = path.read_text()
        if path.name not in OPERATORS:
            rows += [row for row in IN_PYTHON.findall(text) if row[0] not in NO_COMMANDS]
            for name in lua.SOURCES:
                rows += IN_LUA.findall(lua.SOURCES[name]) if f'"{name}"' in text else ()
    return {f"{a}|{b}".lower() if a in CONTAINERS else a.lower() for a, b in rows}


@pytest.mark.parametrize(("folder", "listed"), [("read", READ), ("write", WRITE)])
def test_every_command_of_the_code_is_on_the_list(folder: str, listed: set[str]) -> None:
    connecting = {name for name, _ in right.connecting()}
    assert (used(SOURCE / "spark" / folder) | connecting) - DISPENSABLE == listed


@pytest.fixture
def user(own_server: DialectServer) -> str:
    """The address of a user without any right."""
    own_server.client().execute_command("ACL", "SETUSER", "app", "reset", "on", ">c4nary")
    return own_server.url.replace("//", "//app:c4nary@")


def allow(server: DialectServer, *rules: str) -> None:
    server.client().execute_command("ACL", "SETUSER", "app", *rules)


def known(server: DialectServer, names: set[str]) -> set[str]:
    """A rule for a command that a server has not got would be refused."""
    return names - {"xcfgset"} if server.name == "valkey" else names


def look(url: str, *queues: str) -> right.Rights:
    with Client(read_url(url), patience_s=0) as client:
        return right.look(client, Keys("doctor-nowhere"), queues)


def test_nothing_is_changed_by_looking(own_server: DialectServer) -> None:
    clinic = Clinic(own_server)
    clinic.redis.xadd("{chasqui:mail}:stream", {"d": "x"})
    before = clinic.digest()
    assert look(own_server.url, "mail", "orders") == right.Rights(
        "default", tried=len(READ | WRITE | ACT | WORK)
    )
    assert clinic.digest() == before


def test_all_that_is_missing_is_told(own_server: DialectServer, user: str) -> None:
    allow(own_server, "~{chasqui:mail}:*", "+ping")
    told = look(user, "mail", "orders")
    known = {"xcfgset"} if own_server.name == "valkey" else set()  # what it does not know at all
    assert {*told.read} == READ - {"ping"}
    assert {*told.write} == WRITE - {"ping"} - known - {*right.ASKED}
    assert {*told.act} == ACT and {*told.work} == WORK
    assert told.user == "app"
    allow(own_server, "+evalsha", "+script|load")
    assert {*right.ASKED} <= {*look(user, "mail").write}


def test_keys_that_are_not_ours_are_told(own_server: DialectServer, user: str) -> None:
    rules = [f"+{name}" for name in sorted(READ | WRITE | ACT | WORK)]
    if own_server.name == "valkey":
        rules.remove("+xcfgset")
    allow(own_server, "~{chasqui:mail}:*", "&{chasqui:mail}:*", *rules)
    told = look(user, "mail", "orders")
    assert told._replace(tried=0) == right.Rights("app", keys=("orders",))


def test_a_writer_needs_no_more_than_what_is_listed(
    own_server: DialectServer, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In every way, at once and later."""
    monkeypatch.setenv("AS_APP", user)
    allow(own_server, "~{chasqui:mail}:*", *(f"+{name}" for name in known(own_server, WRITE)))
    later = {"delay_ms": LongType()}
    for number, given in enumerate(({}, {"commitMode": "staged"}, {"idColumn": "id"})):
        columns = later | ({"id": StringType()} if "idColumn" in given else {})
        writing = Writing("$AS_APP", "mail", columns, **given)
        rows = numbered([1], delay_ms=None, id=f"{number}") + numbered(
            [2], delay_ms=60_000, id=f"later {number}"
        )
        asked = [{name: row[name] for name in writing.schema.names} for row in rows]
        way = writing.way()
        way.commit([way.write(0, 0, batches(writing.schema, asked))])
    shelf = Shelf(own_server.client(), "mail")
    assert shelf.numbers() == [1, 1, 1]
    assert [job.payload["n"] for job in shelf.delayed()] == [2, 2, 2]


def test_a_reader_needs_no_more_than_what_is_listed(
    own_server: DialectServer, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every view; and events as a stream, which is planned by a script."""
    monkeypatch.setenv("AS_APP", user)
    allow(own_server, "~{chasqui:mail}:*", *(f"+{name}" for name in known(own_server, READ)))
    keys, client = Keys("mail"), own_server.client()
    for key in (keys.stream, keys.dlq, keys.events):
        client.xadd(key, {"d": "x"})
    client.xgroup_create(keys.stream, "default", "0")
    client.xreadgroup("default", "worker", {keys.stream: ">"})
    client.zadd(keys.delayed, {"member": 1})
    client.zadd(keys.repeat, {"spec": 1})
    client.set(keys.result("job"), b"\xc0")
    schema = StructType([StructField("queue", StringType())])
    for view in get_args(View):
        reader = ChasquiSource({"urlEnv": "AS_APP", "queue": "mail", "view": view}).reader(schema)
        rows = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
        assert sum(rows) == 1, view
    client.xadd(keys.events, {"d": "x"})
    given = {"urlEnv": "AS_APP", "queue": "mail", "view": "events", "maxOffsetsPerTrigger": "1"}
    stream = ChasquiSource(given).streamReader(schema)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    parts = stream.partitions(start, end)
    assert sum(batch.num_rows for part in parts for batch in stream.read(part)) == 1
    stream.stop()
