"""`chasqui spark triage`, `replay` and `purge`: what people type, and what Redis has afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from chasquimq import wire
from tests.cli.kit import Chasqui, Ended
from tests.pipelines.dying import Deaths
from tests.servers import DIALECTS, DialectServer, Servers

CANARY = "c4nary"
Call = Callable[..., Ended]


@pytest.fixture
def server(servers: Servers) -> DialectServer:
    """One kind will do: what differs between them is below the commands."""
    return servers.shared(DIALECTS[0])


@pytest.fixture
def deaths(server: DialectServer, queue_name: str) -> Deaths:
    return Deaths(server, queue_name)


@pytest.fixture
def call(spark: SparkSession, server: DialectServer) -> Call:
    command = Chasqui(server)

    def run(*args: str) -> Ended:
        # Said here: the running session's processes have another address in their environment.
        return command.call("--redis-url", server.url, "spark", *args)

    return run


def mixed(deaths: Deaths) -> None:
    deaths.die(
        [
            {"name": "mail", "data": {"say": f"no user {n}", "n": n, "token": CANARY}}
            for n in range(6)
        ]
        + [
            {"name": "sms", "data": {"say": f"password: {CANARY}", "as": "fatal", "n": n}}
            for n in (6, 7)
        ]
    )


def clusters(call: Call, deaths: Deaths) -> dict[str, str]:
    """Message -> id."""
    told = json.loads(call("triage", deaths.queue, "--json").out)
    return {one["message"]: one["cluster"] for one in told["clusters"]}


def test_triage_shows_the_largest_first_and_no_secret(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    ended = call("triage", deaths.queue)
    assert (ended.code, ended.err) == (0, "")
    title, heads, users, fatal, note = ended.out.splitlines()
    assert title == f"{deaths.queue}: what dead jobs died of"
    assert heads.split()[:4] == ["cluster", "jobs", "share", "reason"]
    assert users.split()[1:4] == ["6", "75%", "retries_exhausted"] and "no user <n>" in users
    assert fatal.split()[1:4] == ["2", "25%", "unrecoverable"] and "password: ***" in fatal
    assert note == "8 dead jobs in 2 clusters"
    full = call("triage", deaths.queue, "--full").out
    assert '"token":"***"' in full and "password: ***" in full and "no user 5" in full
    as_json = call("triage", deaths.queue, "--json").out
    told = json.loads(as_json)
    assert told["dead"] == {deaths.queue: 8} and told["jobs"] == 8
    assert [one["jobs"] for one in told["clusters"]] == [6, 2]
    assert told["clusters"][0]["first_seen_ms"] <= told["clusters"][0]["last_seen_ms"]
    assert CANARY not in ended.out + full + as_json
    cut = call("triage", deaths.queue, "--limit", "1").out
    assert "not shown: 1 cluster, 2 dead jobs; give --limit" in cut


def test_triage_of_some_of_them(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    some = json.loads(call("triage", deaths.queue, "--name", "sms", "--json").out)
    assert (some["jobs"], some["dead"]) == (2, {deaths.queue: 8})
    late = json.loads(call("triage", deaths.queue, "--since", "1h", "--json").out)
    assert late["jobs"] == 8
    none = call("triage", deaths.queue, "--since", "2099-01-01")
    assert none.code == 0 and "(none is meant)" in none.out
    wrong = call("triage", deaths.queue, "--name", "smss")
    assert wrong.code == 1 and "no dead job has the name 'smss'; did you mean 'sms'?" in wrong.err
    assert call("triage", deaths.queue, "--redact", "(").code == 2
    assert call("triage", deaths.queue, "--since", "soon").code == 2


def test_an_empty_dlq_says_so(deaths: Deaths, call: Call) -> None:
    assert "(the DLQ is empty)" in call("triage", deaths.queue).out
    for verb in ("replay", "purge"):
        ended = call(verb, deaths.queue, "--all", "--yes")
        assert ended == (0, f"{deaths.queue}: nothing to {verb}, its DLQ is empty\n", "")


def test_a_cluster_is_replayed(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    users = clusters(call, deaths)["no user <n>"]
    asked = call("replay", deaths.queue, "--cluster", users)
    assert asked.code == 1 and f"replay 6 dead jobs into queue '{deaths.queue}'" in asked.err
    would = call("replay", deaths.queue, "--cluster", users, "--dry-run")
    assert would.out.splitlines()[0] == "would replay 6 of 6 dead jobs"
    assert deaths.waiting == [] and len(deaths.dead) == 8
    ended = call("replay", deaths.queue, "--cluster", users, "--yes")
    assert (ended.code, ended.out.splitlines()) == (
        0,
        ["replayed 6 of 6 dead jobs", f"{deaths.queue} has 2 dead and 6 in its stream now"],
    )
    assert deaths.numbers == [0, 1, 2, 3, 4, 5]
    again = call("replay", deaths.queue, "--cluster", users, "--yes")
    assert again.code == 1 and f"is of cluster '{users}'; " in again.err


def test_an_unknown_cluster_is_told_the_nearest(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    users = clusters(call, deaths)["no user <n>"]
    typo = ("f" if users[0] != "f" else "e") + users[1:]
    ended = call("purge", deaths.queue, "--cluster", typo, "--yes")
    assert ended.code == 1 and f"did you mean '{users}'?" in ended.err
    assert len(deaths.dead) == 8


def test_rows_that_sql_chooses_are_replayed_and_told_as_json(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    deaths.bury(wire.pack_dead(b"\xc1", b"", b"1-1", "decode_failed"))
    sql = "reason = 'decode_failed' OR get_json_object(payload, '$.n') IN (2, 6)"
    ended = call("replay", deaths.queue, "--where", sql, "--rate", "500", "--yes", "--json")
    assert ended.code == 0
    assert json.loads(ended.out) == {
        "queue": deaths.queue,
        "chosen": 3,
        "replayed": 2,
        "gone": 0,
        "unreadable": 1,
        "taken": 0,
        "noted": 2,
        "dead": 7,
        "in_queue": 2,
        "dry_run": False,
    }
    assert deaths.numbers == [2, 6]
    wrong = call("replay", deaths.queue, "--where", "eror = 1", "--yes")
    assert wrong.code == 2 and "--where" in wrong.err and "error_type" in wrong.err
    assert call("replay", deaths.queue, "--where", "error ===", "--yes").code == 2
    late = call("replay", deaths.queue, "--where", "CAST(name AS INT) = 1", "--yes")
    assert late.code == 1 and late.err.startswith("chasqui: Spark failed: [CAST_INVALID_INPUT]")
    assert len(late.err.splitlines()) == 1
    nobody = call("replay", deaths.queue, "--where", "name = 'x'", "--yes")
    assert nobody.out == f"{deaths.queue}: nothing to replay, no dead job is meant\n"


def test_purge_deletes_for_good(deaths: Deaths, call: Call) -> None:
    mixed(deaths)
    fatal = clusters(call, deaths)["password: ***"]
    asked = call("purge", deaths.queue, "--cluster", fatal)
    assert asked.code == 1 and f"delete 2 dead jobs of queue '{deaths.queue}'" in asked.err
    ended = call("purge", deaths.queue, "--cluster", fatal, "--yes")
    assert ended.out.splitlines()[0] == "purged 2 of 2 dead jobs"
    assert sorted(data["n"] for data in deaths.dead.values()) == [0, 1, 2, 3, 4, 5]
    assert deaths.waiting == []


def test_what_makes_no_sense_is_refused_before_spark_starts(call: Call) -> None:
    for given in ((), ("--all", "--where", "true"), ("--all", "--cluster", "a")):
        ended = call("replay", "q", *given)
        assert ended.code == 2 and "--all stands alone" in ended.err
    assert call("replay", "q", "--all", "--rate", "0").code == 2
    assert call("purge", "a{b", "--all").code == 2
    assert call("triage", "a,b").code == 2


def test_a_server_that_is_away_is_told_in_words(spark: SparkSession, server: DialectServer) -> None:
    ended = Chasqui(server).call("--redis-url", "redis://127.0.0.1:1", "spark", "triage", "q")
    assert ended.code == 3 and "cannot reach Redis" in ended.err
