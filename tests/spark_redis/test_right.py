"""What a user needs for reads and for writes: the list is what the code does, and what is missing
is told. That each list is enough, and has nothing to spare: `tests/security/test_users.py`."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, StringType

from chasquimq import lua
from chasquimq.address import read_url
from chasquimq.errors import AccessError
from chasquimq.spark import right
from chasquimq.spark.client import Client
from chasquimq.wire import Keys
from tests.cli.clinic import Clinic
from tests.house.tree import SOURCE
from tests.servers import DIALECTS, DialectServer, Servers
from tests.spark_redis.writing import Writing, batches, numbered

READ = {name for name, _ in right.reading(Keys("mail"))}
ACT = {name for name, _ in right.acting(Keys("mail"))}
WORK = {name for name, _ in right.working(Keys("mail"))}
WRITE = {name for name, _ in right.writing(Keys("mail"))} | {*right.ASKED}
IN_LUA = re.compile(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?")
IN_PYTHON = re.compile(r'"([A-Z]{3,})"(?:, "(INFO|STREAM|GROUPS|CREATE|DESTROY)")?')
CONTAINERS = {"XINFO", "XGROUP", "COMMAND"}
NO_COMMANDS = {"COUNT", "MATCH", "WRONGTYPE"}
DISPENSABLE = {"info"}  # where an ACL keeps it from us, we do without
OTHERS = {"xinfo|groups"}  # who opens a stream for a group asks for it; we have none
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
    assert (used(SOURCE / "spark" / folder) | connecting) - DISPENSABLE - OTHERS == listed


@pytest.fixture
def user(own_server: DialectServer) -> str:
    """The address of a user without any right."""
    own_server.client().execute_command("ACL", "SETUSER", "app", "reset", "on", ">c4nary")
    return own_server.url.replace("//", "//app:c4nary@")


def allow(server: DialectServer, *rules: str) -> None:
    server.client().execute_command("ACL", "SETUSER", "app", *rules)


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
    assert {*told.act} == ACT - {"ping"} - known and {*told.work} == WORK
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


def test_a_write_that_lacks_a_right_brings_all_rows_or_none(
    servers: Servers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever it is, and however it writes: what is refused is refused before the first row. One
    kind of server will do, as all are asked alike."""
    caplog.set_level(logging.CRITICAL)
    later, place, keys = {"delay_ms": LongType()}, tmp_path / "address", Keys("mail")
    rows = numbered(range(2), delay_ms=None, id="a") + numbered([2], delay_ms=60_000, id="b")
    rows[1]["id"] = "c"
    told: dict[str, set[int]] = {}
    with servers.private(DIALECTS[0]) as server:
        client = server.client()
        place.write_text(server.url.replace("//", "//app:c4nary@"))
        for lacking in sorted(WRITE):
            for given in ({}, {"commitMode": "staged"}, {"idColumn": "id"}):
                client.flushall()
                whole = [f"+{name}" for name in sorted(WRITE - {lacking})]
                allow(server, "reset", "on", ">c4nary", "~{chasqui:mail}:*", *whole)
                columns = later | ({"id": StringType()} if "idColumn" in given else {})
                writing = Writing(str(place), "mail", columns, **given)
                some = [{name: row[name] for name in writing.schema.names} for row in rows]
                way, brought = writing.way(), 3
                try:
                    way.commit([way.write(0, 0, batches(writing.schema, some))])
                except AccessError:
                    brought = 0
                there = client.xlen(keys.stream) + client.zcard(keys.delayed)
                assert there == brought, (lacking, given)
                told.setdefault(lacking, set()).add(brought)
    assert all(0 in told[name] for name in ("xadd", "hdel", "spop", "unlink"))
