"""`chasqui doctor` on real servers, each brought into the state that it should find.

What is only a matter of numbers (memory, latency, slow logs) is in `test_check_server.py`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from chasquimq.cli.check.catalog import CATALOG
from chasquimq.cli.check.spark import KINDS as SPARK_KINDS
from chasquimq.server import Server
from chasquimq.sync import Queue
from tests.cli.clinic import Clinic, Patient, wait_for
from tests.cli.golden import same
from tests.examples.page import ROOT
from tests.replicas import replica_of
from tests.servers import DIALECTS, DialectServer, Servers

NATIVE, _, VALKEY = DIALECTS


@pytest.fixture(scope="module", params=[NATIVE, VALKEY], ids=["redis", "valkey"])
def clinic(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Clinic]:
    """A server for this file, that keeps an append-only file."""
    with servers.private(request.param) as server:
        yield Clinic(server)


@pytest.fixture
def patient(clinic: Clinic, queue_name: str) -> Patient:
    return Patient(clinic, queue_name)


# -- the healthy ---------------------------------------------------------------------------------


def test_a_server_and_a_queue_that_are_well_are_told_to_be(own_server: DialectServer) -> None:
    clinic = Clinic(own_server)
    with Queue("mail", redis_url=own_server.url, dialect=own_server.forced_dialect) as queue:
        queue.add("welcome", {"user": 42})
        queue.add("later", None, delay_ms=600_000)
        queue.upsert_repeatable_job("daily", None, repeat={"kind": "every", "interval_ms": 60_000})
    report = clinic.report()
    assert {one["severity"] for one in report.values()} <= {"ok", "note"}
    assert {"server.version", "server.rights", "queue.well", "queue.bytes"} <= set(report)
    dialect = report["server.version"]["facts"]["dialect"]
    assert dialect == ("native" if own_server.name == "redis-native" else "portable")
    assert ("server.forced-dialect" in report) == (own_server.forced_dialect is not None)
    assert set(report["queue.bytes"]["facts"]["families"]) >= {"stream", "delayed", "didx", "spec"}
    assert clinic.bad("--quick") == {}


def test_nothing_is_changed_by_looking(clinic: Clinic, patient: Patient) -> None:
    patient.group()
    patient.group("second")
    patient.add(3)
    patient.hold("w", 2)
    patient.redis.xdel(patient.keys.stream, patient.add()[0])
    patient.redis.set(patient.keys.didx("gone"), b"1234 front")
    patient.redis.zadd(patient.keys.repeat, {"bare": 1})
    before = clinic.digest()
    assert clinic.bad(patient.name, "--silent-ms", "0", "--lease-ms", "1")
    user = "redis://looker:looker@"  # not a secret
    clinic.redis.execute_command("ACL", "SETUSER", "looker", "on", ">looker", "~*", "&*", "+@all",
                                 "-acl|dryrun")  # fmt: skip
    rights = clinic.report(url=clinic.server.url.replace("redis://", user))["server.rights"]
    assert "tried without effect" in rights["text"]
    assert clinic.digest() == before
    clinic.redis.execute_command("ACL", "DELUSER", "looker")
    clinic.redis.delete(patient.keys.stream, patient.keys.repeat, patient.keys.didx("gone"))


def test_a_hurry_leaves_out_the_walk(clinic: Clinic, patient: Patient) -> None:
    def scans() -> int:
        return int(clinic.redis.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])

    patient.group()
    before = scans()
    assert "queue.bytes" not in clinic.report("--quick", patient.name)
    assert scans() == before
    assert "queue.bytes" in clinic.report(patient.name)
    assert scans() > before


# -- the server ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "code", "severity"), [
    ({"maxmemory_policy": "allkeys-lru"}, "server.eviction-allkeys", "problem"),
    ({"maxmemory_policy": "volatile-lru"}, "server.eviction-volatile", "warning"),
    ({"appendonly": "no", "save": ""}, "server.no-persistence", "problem"),
    ({"appendonly": "no", "save": "3600 1"}, "server.snapshots-only", "warning"),
    ({"appendfsync": "no"}, "server.fsync-never", "warning"),
    ({"timeout": "300"}, "server.idle-timeout", "warning"),
    ({"stream_node_max_entries": "0"}, "server.stream-nodes", "warning"),
    ({"client_output_buffer_limit": "normal 1048576 0 0"}, "server.output-buffer", "warning"),
    ({"maxmemory": "64mb"}, "server.memory", "ok"),
    ({"maxmemory": "1mb"}, "server.memory-full", "problem"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_doctor_matrix_of_settings(
    clinic: Clinic, setting: dict[str, str], code: str, severity: str
) -> None:
    with clinic.setting(**setting):
        wait_for(lambda: clinic.redis.info("persistence")["aof_rewrite_in_progress"] == 0)
        found = clinic.report("--quick", "none")
    assert found[code]["severity"] == severity
    assert code not in clinic.report("--quick", "none")


def test_an_append_only_file_that_forgets_ids_matters_where_there_is_idmp(clinic: Clinic) -> None:
    with clinic.setting(aof_use_rdb_preamble="no"):
        assert ("server.aof-preamble-off" in clinic.bad("--quick", "none")) == clinic.native


def test_clients_near_their_limit(clinic: Clinic) -> None:
    with clinic.setting(maxclients="2"):
        assert "server.clients-near" in clinic.bad("--quick", "none")


def test_a_snapshot_that_failed_is_a_problem(servers: Servers) -> None:
    with Server(servers.shared(NATIVE).server.binary) as server:
        clinic = Clinic(DialectServer("redis-native", server, None))
        shutil.rmtree(server.folder)
        clinic.redis.bgsave()
        status = "rdb_last_bgsave_status"
        wait_for(lambda: clinic.redis.info("persistence")[status] == "err")
        assert clinic.bad("--quick", "none")["server.save-failed"] == "problem"
        clinic.server.close()


def test_commands_that_held_up_the_server_are_named(clinic: Clinic, patient: Patient) -> None:
    patient.group()
    clinic.redis.execute_command("DEBUG", "SLEEP", "0.11")
    assert "debug" in clinic.report("--quick", patient.name)["server.slow-command"]["text"].lower()
    clinic.redis.slowlog_reset()
    assert "server.slow-command" not in clinic.report("--quick", patient.name)


def test_a_node_of_a_cluster_is_refused_with_words(servers: Servers) -> None:
    binary = servers.shared(NATIVE).server.binary
    with Server(binary, config={"cluster-enabled": "yes"}) as server:
        clinic = Clinic(DialectServer("redis-native", server, None))
        assert clinic.bad("--quick")["server.cluster"] == "problem"
        clinic.server.close()


def test_a_replica_is_a_problem_and_names_its_master(clinic: Clinic) -> None:
    with replica_of(clinic.server) as replica:
        found = clinic.report("--quick", url=replica.server.url)
    assert found["server.replica"]["severity"] == "problem"
    assert "export CHASQUI_REDIS_URL=redis://127.0.0.1" in found["server.replica"]["fix"]


def test_an_empty_database_beside_a_full_one_is_noted(clinic: Clinic, patient: Patient) -> None:
    patient.add()
    found = clinic.report("--quick", url=f"{clinic.server.url}/7")
    assert found["server.other-database"]["severity"] == "note"


# -- rights --------------------------------------------------------------------------------------


@pytest.fixture
def user(clinic: Clinic) -> Iterator[str]:
    yield "app"
    clinic.redis.execute_command("ACL", "DELUSER", "app")


def enter(clinic: Clinic, *rules: str) -> str:
    """Make the user; answers how to connect as it."""
    clinic.redis.execute_command("ACL", "SETUSER", "app", "reset", "on", ">app", *rules)
    return clinic.server.url.replace("redis://", "redis://app:app@")  # not a secret


def test_a_user_without_some_rights_is_told_which_and_how_to_grant_them(
    clinic: Clinic, patient: Patient, user: str
) -> None:
    patient.group()
    url = enter(clinic, "~*", "&*", "+@all", "-xack", "-xgroup|create", "-publish", "-acl|dryrun")
    tried = clinic.report(patient.name, url=url)["server.rights-missing"]
    assert tried["facts"]["missing"] == ["xack", "xgroup|create", "publish"]
    enter(clinic, "~*", "&*", "+@all", "-xack", "-xgroup|create", "-publish")
    asked = clinic.report(patient.name, url=url)["server.rights-missing"]
    assert asked["facts"] == tried["facts"]
    granted = asked["fix"].split("ACL SETUSER ")[1].replace("'", "").split()
    clinic.redis.execute_command("ACL", "SETUSER", *granted)
    assert "server.rights-missing" not in clinic.report(patient.name, url=url)


@pytest.mark.parametrize("rules", [("-acl",), ()], ids=["tried", "asked"])
def test_a_user_without_the_queues_keys_is_told_so(
    clinic: Clinic, patient: Patient, user: str, rules: tuple[str, ...]
) -> None:
    patient.group()
    own = "~{chasqui:" + patient.name + "}:"
    url = enter(clinic, f"{own}stream", "&*", "+@all", *rules)
    found = clinic.report("--quick", patient.name, url=url)
    assert found["server.rights-keys"]["facts"]["queues"] == [patient.name]
    url = enter(clinic, f"{own}*", "+@all", *rules)  # its keys, and not its channel
    assert "server.rights-keys" in clinic.report("--quick", patient.name, url=url)
    url = enter(clinic, f"{own}*", "&{chasqui:" + patient.name + "}:*", "+@all", *rules)
    assert "server.rights" in clinic.report("--quick", patient.name, url=url)


def test_what_the_page_on_connecting_grants_is_enough(
    clinic: Clinic, patient: Patient, user: str
) -> None:
    """The rules of `docs/how-to/connect.md`, as they stand there."""
    patient.group()
    page = (ROOT / "docs/how-to/connect.md").read_text()
    [line] = re.findall(r"ACL SETUSER mail-app on (.*?)\n```", page, re.DOTALL)
    words = line.replace("\\\n", " ").replace("'", "").replace("mail}", patient.name + "}").split()
    url = enter(clinic, *[word for word in words if not word.startswith(">")])
    found = clinic.report("--quick", patient.name, url=url)
    assert {"server.rights-missing", "server.rights-keys"} & set(found) == set()
    assert found["server.hidden"]["severity"] == "note"  # as on a managed service
    assert all(one["severity"] in ("ok", "note") for one in found.values())


# -- a server that does not answer -----------------------------------------------------------------


def test_no_server_is_a_problem_and_this_side_is_still_looked_at(clinic: Clinic) -> None:
    ended = clinic.doctor("--json", "--redis-url", "redis://127.0.0.1:1")
    assert ended.code == 5
    assert '"server.unreachable"' in ended.out and '"python.versions"' in ended.out


def test_a_wrong_password_is_a_problem_and_is_not_shown(clinic: Clinic) -> None:
    url = clinic.server.url.replace("redis://", "redis://app:hunter22@")  # not a secret
    ended = clinic.doctor("--redis-url", url)
    assert ended.code == 5
    assert "WRONGPASS" in ended.out and "hunter22" not in ended.out + ended.err


def test_a_server_that_stops_answering_is_a_finding_and_no_hang(own_server: DialectServer) -> None:
    clinic = Clinic(own_server)
    own_server.server.pause()
    try:
        assert clinic.bad("--timeout-ms", "50")["server.unreachable"] == "problem"
    finally:
        own_server.server.resume()
    clinic.redis.execute_command("ACL", "SETUSER", "default", "-info")
    found = clinic.report("--quick")
    assert found["server.hidden"]["facts"]["hidden"] == ["INFO"]


# -- what people see -------------------------------------------------------------------------------

WORDS = {  # what differs from run to run
    r"-p \d+": "-p PORT",
    r"[\d.]+ (B|KiB|MiB|GiB)": "SIZE",
    r"\d+% of": "N% of",
    r"maxmemory \d+": "maxmemory N",
    r"[\d.]+ ms": "N ms",
    r"Redis \d[\d.]*": "Redis N",
}


def ill(clinic: Clinic, name: str) -> Patient:
    patient = Patient(clinic, name)
    patient.group()
    patient.group("old")
    hour_ago = int(clinic.redis.time()[0]) * 1000 - 3_600_000
    clinic.redis.zadd(patient.keys.delayed, {b"\x00\x00\x00\x00x": hour_ago})
    return patient


def only_there(text: str) -> str:
    """Without what is about this side, which differs from machine to machine, and how many notes
    that makes; with words one space apart, or two between columns."""
    side = (
        r"this side\n.*?\n\n|[^\n]*this side[^\n]*\n|, \d+ notes?"
        r"|[^\n]*server\.(latency|jitter)[^\n]*\n"
    )
    text = re.sub(side, "", text, flags=re.DOTALL)
    for pattern, word in WORDS.items():
        text = re.sub(pattern, word, text)
    return re.sub(r"(?<=\S) {2,}", "  ", text)


def test_a_report_in_a_pipe_is_one_line_per_finding(servers: Servers) -> None:
    with servers.private(NATIVE) as server:
        clinic = Clinic(server)
        ill(clinic, "mail")
        with clinic.setting(maxmemory_policy="allkeys-lru", maxmemory="10gb"):
            ended = clinic.doctor("--quick", "mail")
            assert ended.code == 5
            same("doctor-piped", only_there(ended.out))
            with clinic.chasqui.open("doctor", "--quick", "mail", columns=100, rows=50) as terminal:
                assert terminal.end() == 5
                same("doctor-terminal", only_there(terminal.text))


def test_exit_codes_go_by_the_worst(clinic: Clinic, patient: Patient) -> None:
    patient.group()
    assert clinic.doctor("--quick", patient.name).code == 0
    patient.group("second")
    assert clinic.doctor("--quick", patient.name).code == 4
    patient.redis.set(patient.keys.dlq, "no stream")
    assert clinic.doctor("--quick", patient.name).code == 5


def test_what_makes_no_sense_is_a_wrong_command_line(clinic: Clinic) -> None:
    assert clinic.doctor("a{b").code == 2
    assert clinic.doctor("--lease-ms", "0").code == 2


def test_the_page_tells_every_finding_and_how_bad_it_is() -> None:
    page = (ROOT / "docs/reference/doctor.md").read_text()
    known = CATALOG | SPARK_KINDS
    rows = re.findall(r"^\| `([a-z]+\.[a-z-]+3?)` \| (\w+) \| \S.* \| \S.* \|$", page, re.MULTILINE)
    assert dict(rows) == {code: severity.word for code, severity in known.items()}
    assert len(rows) == len(known)
