"""What doctor says of a server, from facts alone."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq.address import Address, read_url
from chasquimq.cli.check import access, server
from chasquimq.cli.check.finding import Finding, Severity, Shell, worst
from chasquimq.store.exam.right import Rights
from chasquimq.store.exam.server import ServerFacts, Slow

HERE = read_url("redis://127.0.0.1:6379")
INFO = {
    "redis_version": "8.6.3",
    "role": "master",
    "cluster_enabled": "0",
    "used_memory": "1000",
    "maxmemory": "100000",
    "total_system_memory": "1000000",
    "mem_fragmentation_ratio": "1.1",
    "mem_fragmentation_bytes": "100",
    "aof_enabled": "1",
    "connected_clients": "3",
    "db0": "keys=5,expires=0,avg_ttl=0",
}
CONFIG = {
    "maxmemory-policy": "noeviction",
    "maxclients": "100",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "3600 1",
    "aof-use-rdb-preamble": "yes",
    "stop-writes-on-bgsave-error": "yes",
    "timeout": "0",
    "stream-node-max-bytes": "4096",
    "stream-node-max-entries": "100",
    "client-output-buffer-limit": "normal 0 0 0 slave 268435456 67108864 60",
}
GRANTED = Rights("app", tried=40)


def facts(
    info: dict[str, str] | None = None, config: dict[str, str] | None = None, **others: Any
) -> ServerFacts:
    """Those of a server that is well, with these changes."""
    well: dict[str, Any] = {
        "info": {**INFO, **(info or {})},
        "config": {**CONFIG, **(config or {})},
        "knows_idmp": True,
        "user": "app",
        "keys": 5,
        "skew_ms": 3,
        "pings_ms": (0.2, 0.3, 0.4),
        "slow": (),
    }
    return ServerFacts(**{**well, **others})


def look(
    seen: ServerFacts,
    *,
    address: Address = HERE,
    rights: Rights | None = GRANTED,
    forced: str | None = None,
) -> dict[str, Finding]:
    shell = Shell(address)
    found = server.check_server(seen, shell, forced)
    found += access.check_access(seen, address, shell, rights)
    return {one.code: one for one in found}


FAR = read_url("rediss://app:password@redis.example.com:6380")
SLOW_SCRIPT = Slow("evalsha x", 250_000, 5, "promote")
SLOW_COMMAND = Slow("keys *", 250_000, 5)

# (code, what is different, a word of the command that mends it)
TROUBLE: list[tuple[str, dict[str, Any], str]] = [
    ("server.no-answer", {"facts": {"unanswered": "INFO", "trouble": "late"}}, "--latency"),
    ("server.crashing-version", {"info": {"redis_version": "8.2.1"}}, "INFO server"),
    ("server.too-old", {"info": {"redis_version": "6.2.7"}}, "INFO server"),
    ("server.idmp-forgets", {"info": {"redis_version": "8.6.1"}}, "INFO server"),
    ("server.cluster", {"info": {"cluster_enabled": "1"}}, "redis+cluster://"),
    ("server.replica", {"info": {"role": "slave", "master_host": "a", "master_port": "6379"}},
     "CHASQUI_REDIS_URL=redis://a:6379"),
    ("server.forced-dialect", {"forced": "portable"}, "unset CHASQUI_DIALECT"),
    ("server.hidden", {"facts": {"hidden": ["SLOWLOG GET"], "slow": None}}, ""),
    ("server.eviction-allkeys", {"config": {"maxmemory-policy": "allkeys-lru"}},
     "CONFIG SET maxmemory-policy noeviction"),
    ("server.eviction-volatile", {"config": {"maxmemory-policy": "volatile-ttl"}},
     "CONFIG SET maxmemory-policy noeviction"),
    ("server.memory-unlimited", {"info": {"maxmemory": "0"}}, "CONFIG SET maxmemory 1048576"),
    ("server.memory-near-full", {"info": {"used_memory": "80000"}}, "CONFIG SET maxmemory 200000"),
    ("server.memory-full", {"info": {"used_memory": "99000"}}, "CONFIG SET maxmemory 200000"),
    ("server.fragmented", {"info": {"mem_fragmentation_ratio": "1.9",
                                    "mem_fragmentation_bytes": str(200 << 20)}}, "MEMORY PURGE"),
    ("server.no-persistence", {"info": {"aof_enabled": "0"}, "config": {"save": ""}},
     "CONFIG SET appendonly yes"),
    ("server.snapshots-only", {"info": {"aof_enabled": "0"}}, "CONFIG SET appendonly yes"),
    ("server.fsync-never", {"config": {"appendfsync": "no"}}, "CONFIG SET appendfsync everysec"),
    ("server.save-failed", {"info": {"rdb_last_bgsave_status": "err"}}, "BGSAVE"),
    ("server.aof-failed", {"info": {"aof_last_write_status": "err"}}, "BGREWRITEAOF"),
    ("server.aof-preamble-off", {"config": {"aof-use-rdb-preamble": "no"}},
     "CONFIG SET aof-use-rdb-preamble yes"),
    ("server.aof-not-rewritten", {"info": {"aof_rewrites": "0", "aof_base_size": "5000"}},
     "BGREWRITEAOF"),
    ("server.stream-nodes", {"config": {"stream-node-max-entries": "0"}},
     "CONFIG SET stream-node-max-entries 100"),
    ("server.slow", {"facts": {"pings_ms": (30.0, 31.0, 32.0)}}, "--latency-history"),
    ("server.jitter", {"facts": {"pings_ms": (0.1, 0.2, 150.0)}}, "--latency"),
    ("server.slow-script", {"facts": {"slow": (SLOW_SCRIPT,)}}, "SLOWLOG GET"),
    ("server.slow-command", {"facts": {"slow": (SLOW_COMMAND,)}}, "SLOWLOG GET"),
    ("server.clock-skew", {"facts": {"skew_ms": -60_000}}, "set-ntp"),
    ("server.clients-near", {"info": {"connected_clients": "90"}}, "CONFIG SET maxclients 200"),
    ("server.idle-timeout", {"config": {"timeout": "300"}}, "CONFIG SET timeout 0"),
    ("server.output-buffer", {"config": {"client-output-buffer-limit": "normal 1000000 0 0"}},
     "client-output-buffer-limit"),
    ("server.plain-tcp", {"address": read_url("redis://app:password@10.0.0.1")}, "rediss://10.0.0.1"),
    ("server.no-password", {"address": read_url("rediss://10.0.0.1")}, "ACL SETUSER default"),
    ("server.tls-unverified",
     {"address": read_url("rediss://app:password@10.0.0.1?insecure=true")}, "ssl_ca_certs"),
    ("server.rights-missing", {"rights": Rights("app", missing=("xack", "xgroup|create"))},
     "ACL SETUSER app +xack '+xgroup|create'"),
    ("server.rights-keys", {"rights": Rights("app", keys=("mail",))}, "'~{chasqui:mail}:*'"),
    ("server.rights-extra", {"rights": Rights("app", extra=("wait",))}, "+wait"),
    ("server.other-database", {"facts": {"keys": 0}, "address": read_url("redis://127.0.0.1/3")},
     "redis://127.0.0.1:6379/0"),
]  # fmt: skip
WELL = {
    "server.version",
    "server.eviction",
    "server.memory",
    "server.persistence",
    "server.latency",
    "server.rights",
}


def changed(change: dict[str, Any]) -> dict[str, Finding]:
    how = {name: change[name] for name in ("address", "rights", "forced") if name in change}
    seen = facts(change.get("info"), change.get("config"), **change.get("facts", {}))
    return look(seen, **how)


def test_a_server_that_is_well_has_nothing_but_good_news() -> None:
    assert set(look(facts())) == WELL
    assert worst(look(facts()).values()) is Severity.OK


def test_a_far_server_over_tls_with_a_password_is_as_good() -> None:
    assert set(look(facts(), address=FAR)) == WELL


@pytest.mark.parametrize(("code", "change", "mend"), TROUBLE, ids=[one[0] for one in TROUBLE])
def test_each_trouble_is_seen_alone_and_names_what_mends_it(
    code: str, change: dict[str, Any], mend: str
) -> None:
    found = changed(change)
    assert set(found) - WELL == {code}
    assert mend in (found[code].fix or "")
    assert found[code].severity is {**server.KINDS, **access.KINDS}[code]


def test_every_kind_of_finding_is_tested_here() -> None:
    told = {code for code, *_ in TROUBLE} | WELL | {"server.unreachable"}
    assert told == set(server.KINDS) | set(access.KINDS)


def test_an_unreachable_server_is_a_problem_with_the_words_of_the_error() -> None:
    [one] = server.unreachable("cannot reach Redis", Shell(HERE))
    assert (one.code, one.severity, one.text) == (
        "server.unreachable",
        Severity.PROBLEM,
        "cannot reach Redis",
    )


def test_what_is_hidden_is_not_guessed_at() -> None:
    found = look(ServerFacts(hidden=["INFO", "CONFIG GET"]), rights=None)
    assert set(found) == {"server.hidden"}


def test_valkey_is_known_by_its_own_version_and_has_other_limits() -> None:
    valkey = {"server_name": "valkey", "valkey_version": "9.1.2", "redis_version": "7.2.4"}
    found = look(facts(valkey, {"aof-use-rdb-preamble": "no"}, knows_idmp=False))
    assert set(found) == WELL  # it has no IDMP that a rewrite could forget
    assert "Valkey 9.1.2" in found["server.version"].text
    assert found["server.version"].facts["dialect"] == "portable"
    assert "server.too-old" in look(facts({**valkey, "valkey_version": "7.2.6"}, knows_idmp=False))


@pytest.mark.parametrize(("used", "code"), [
    ("74999", "server.memory"), ("75000", "server.memory-near-full"),
    ("94999", "server.memory-near-full"), ("95000", "server.memory-full"),
])  # fmt: skip
def test_memory_is_judged_by_how_near_it_is(used: str, code: str) -> None:
    assert code in look(facts({"used_memory": used}))


def test_a_pause_of_this_machine_is_not_blamed_on_the_server() -> None:
    slow = facts(pings_ms=(0.1, 0.2, 150.0), pause_ms=140.0)
    assert "this machine itself" in look(slow)["server.jitter"].text


@pytest.mark.parametrize(("url", "line"), [
    ("redis://127.0.0.1:6379", "redis-cli PING"),
    ("redis://127.0.0.1:7000/2", "redis-cli -h 127.0.0.1 -p 7000 -n 2 PING"),
    ("rediss://ann:password@db:6380", "redis-cli -h db -p 6380 --tls PING"),
    ("unix:///run/redis.sock", "redis-cli -s /run/redis.sock PING"),
])  # fmt: skip
def test_a_line_to_paste_goes_to_this_server_and_holds_no_password(url: str, line: str) -> None:
    assert Shell(read_url(url)).redis("PING") == line
    assert "password" not in Shell(read_url(url)).chasqui("inspect")


def test_signs_of_patterns_in_a_name_are_meant_as_they_are() -> None:
    assert access.patterns("a*b")[0] == r"~{chasqui:a\*b}:*"
