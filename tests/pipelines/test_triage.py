"""Triage: dead jobs by what they died of, and no secret among what is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from chasquimq import wire
from chasquimq.errors import ConfigError
from chasquimq.spark.act import replay
from chasquimq.spark.pipelines.cluster import SCHEMA, clustered, triage
from chasquimq.spark.pipelines.mask import masked
from tests.pipelines.dying import Deaths
from tests.servers import DialectServer, Servers
from tests.spark.session import NATIVE, PORTABLE

CANARY = "c4nary"
Read = Callable[..., DataFrame]

MASKED = {
    "no user 7 in order 1234": "no user <n> in order <n>",
    "took 1.5 s, wanted -3,000 of 1e9": "took <n> s, wanted <n> of <n>",
    "order-77 of abc123": "order-<n> of abc<n>",
    "job 6f9619ff-8b86-d011-b42d-00cf4fc964ff died": "job <id> died",
    "job 01ARZ3NDEKTSV4RRFFQ69G5FAV died": "job <id> died",
    "at 0x7f3b2c001fd0 and deadbeef01 and 12345678": "at <hex> and <hex> and <n>",
    "it is a decade": "it is a decade",
    "file '/tmp/a b' is not there": "file <text> is not there",
    'no "a \\" b" there': "no <text> there",
    "it's bob's and the users' table": "it's bob's and the users' table",
    "'it's here' he said": "<text> he said",
    'cut off "in the mid': "cut off <text>",
    "open /var/lib/x-1/data.db failed": "open <path> failed",
    "no ./a/b.txt, ~/c, ../d or src/app/main.py": "no <path>, ... or <path>",
    "read/write and text/html": "read/write and text/html",
    "C:\\Users\\bob\\x.txt is locked": "<path> is locked",
    "GET https://example.org/a?b=c#d. Failed": "GET <url>. Failed",
    "mail to bob.smith+x@mail.example.org bounced": "mail to <email> bounced",
    "10.0.0.1:6379 and fe80::1 and [2001:db8::1]:80 refused": "<ip> and <ip> and <ip> refused",
    "at 2026-11-18T03:44:01.123Z and 2026-11-18 and 03:44:01": "at <time> and <time> and <time>",
    "due 2026-11-18 03:44 +01:00 now": "due <time> now",
    "ids 1, 2, 3, 4 left": "ids <n>, ... left",
    "ids 1 left": "ids <n> left",
    "line\n\n  two\tthree": "line two three",
    "key sk_live_4eC39HqLyjWDarjtT1 refused": "key <id> refused",
    "password=hunter2": "password=<text>",
    "user=bob shard=a was gone": "user=<text> shard=<text> was gone",
    "Authorization: Bearer abc.def.ghi": "Authorization: <text>",
    "std::bad_alloc: HTTP2 GOAWAY": "std::bad_alloc: HTTP<n> GOAWAY",
    "x" * 5_000: "x" * 200,
    "\\" * 900 + '"' + "\\a" * 2_000: None,
    "'" + "a'b" * 2_000: None,
    "": "",
}


def test_what_differs_from_job_to_job_is_masked(spark: SparkSession) -> None:
    rows = [(text,) for text in MASKED]
    frame = spark.createDataFrame(rows, "text STRING").withColumn("got", masked(F.col("text")))
    got = {row.text: row.got for row in frame.collect()}
    assert {text: got[text] for text, kept in MASKED.items() if kept is not None} == {
        text: kept for text, kept in MASKED.items() if kept is not None
    }
    null = spark.sql("SELECT CAST(NULL AS STRING) AS text").select(masked(F.col("text")).alias("m"))
    assert null.first() == Row(m="")


@pytest.fixture
def server(request: pytest.FixtureRequest, servers: Servers) -> DialectServer:
    """One kind will do for most: what is read of both is alike."""
    return servers.shared(getattr(request, "param", NATIVE))


EACH = [pytest.param(one, id=one.name) for one in (NATIVE, PORTABLE)]


@pytest.fixture
def deaths(server: DialectServer, queue_name: str) -> Deaths:
    return Deaths(server, queue_name)


@pytest.fixture
def read(spark: SparkSession, deaths: Deaths) -> Read:
    def load(**options: Any) -> DataFrame:
        given = {"url": deaths.url, "queue": deaths.queue, "view": "dlq", **options}
        return spark.read.format("chasqui").options(**given).load()

    return load


def mixed(deaths: Deaths) -> None:
    """Six users who are missing, three keys, two that are fatal, one that nobody can read."""
    deaths.die(
        [
            {"name": "mail" if n else "sms", "data": {"say": f"no user {n} in '{n}.db'", "n": n}}
            for n in range(6)
        ]
        + [{"name": "", "data": {"say": f"k{n}", "as": "key", "password": CANARY}} for n in "abc"]
        + [{"name": "pay", "data": {"say": f"card={CANARY}", "as": "fatal"}} for n in range(2)]
    )
    deaths.bury(wire.pack_dead(b"\xc1", b"pay", b"1-1", "decode_failed", detail="no map at 3"))


@pytest.mark.parametrize("server", EACH, indirect=True)
def test_a_mixed_dlq_is_clustered(deaths: Deaths, read: Read) -> None:
    mixed(deaths)
    told = triage(read())
    assert told.schema.simpleString() == spark_type(told, SCHEMA)
    rows = told.collect()
    assert [row.jobs for row in rows] == [6, 3, 2, 1]
    users, keys, fatal, broken = rows
    assert {row.queue for row in rows} == {deaths.queue}
    assert users.message == "no user <n> in <text>"
    assert users.reason == "retries_exhausted" and users.error_type.endswith("ValueError")
    assert users.names == ["mail", "sms"] and users.distinct_names == 2
    assert keys.names == [""] and keys.message == "<text>" and keys.error_type.endswith("KeyError")
    assert fatal.reason == "unrecoverable" and fatal.message == "card=***"
    assert broken.reason == "decode_failed" and broken.message == "no map at <n>"
    assert broken.example_payload is None and broken.example_error == "no map at 3"
    died = [row.failed_at for row in read().where("error LIKE 'no user%'").collect()]
    assert (users.first_seen, users.last_seen) == (min(died), max(died))
    data = deaths.dead[users.example_id]
    assert users.example_error == data["say"]
    assert f'"n":{data["n"]}' in users.example_payload.replace(" ", "")
    assert CANARY not in str(rows)


def spark_type(frame: DataFrame, ddl: str) -> str:
    return frame.sparkSession.createDataFrame([], ddl).schema.simpleString()


def test_a_cluster_s_name_is_the_same_in_every_queue_and_picks_its_rows(
    deaths: Deaths, read: Read, server: DialectServer
) -> None:
    mixed(deaths)
    other = Deaths(server, f"{deaths.queue}-other")
    other.die([{"name": "mail", "data": {"say": "no user 99 in 'x'"}}])
    rows = triage(read(queue=f"{deaths.queue},{other.queue}")).collect()
    users = [row for row in rows if row.message == "no user <n> in <text>"]
    assert {(row.queue, row.jobs) for row in users} == {(deaths.queue, 6), (other.queue, 1)}
    [name] = {row.cluster for row in users}
    assert len(name) == 10 and int(name, 16) >= 0
    told = replay(clustered(read()).where(F.col("cluster") == name), {"url": deaths.url})
    assert [row.outcome for row in told.collect()] == ["replayed"] * 6
    assert deaths.numbers == [0, 1, 2, 3, 4, 5]
    assert [row.jobs for row in triage(read()).collect()] == [3, 2, 1]


@pytest.mark.parametrize("form", ["json", "struct", "variant", "binary"])
def test_no_secret_shows_in_whatever_form_payloads_were_read(
    deaths: Deaths, read: Read, form: str
) -> None:
    deep: Any = {"say": f"token: {CANARY}", "a": [{"b": {"api_key": {"x": [CANARY]}, "n": 1}}]}
    deaths.die([{"name": "n", "data": deep}])
    schema = "a ARRAY<STRUCT<b: STRUCT<api_key: STRUCT<x: ARRAY<STRING>>, n: INT>>>"
    options = {"payloadSchema": schema} if form == "struct" else {"payloadFormat": form}
    [row] = triage(read(**options)).collect()
    assert CANARY not in str(row)
    assert row.example_error == "token: ***"
    if form == "binary":
        assert row.example_payload is None
    else:
        assert '"a":[{"b":{"api_key":"***","n":1}}]' in row.example_payload


def test_a_pattern_of_ones_own_hides_in_errors_and_payloads(deaths: Deaths, read: Read) -> None:
    deaths.die([{"name": "n", "data": {"say": "tenant: acme", "tenant": "acme", "b": 1}}])
    [row] = triage(read(), redact="tenant").collect()
    assert "acme" not in str(row.asDict())
    assert '"b":1' in row.example_payload


def test_a_frame_without_payloads_is_enough_and_one_of_another_view_is_not(
    deaths: Deaths, read: Read
) -> None:
    deaths.numbered(2)
    [row] = triage(read().drop("payload")).collect()
    assert (row.jobs, row.example_payload) == (2, None)
    with pytest.raises(ConfigError, match="no column failed_at"):
        triage(read(view="jobs"))
    with pytest.raises(ConfigError, match="redact"):
        triage(read(), redact="(")


def test_an_empty_dlq_has_no_clusters(read: Read) -> None:
    assert triage(read()).collect() == []
