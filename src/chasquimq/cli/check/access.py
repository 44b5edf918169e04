"""The way to the server: how fast, how safe, what we may do there, who else is busy. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any

from chasquimq.address import Address
from chasquimq.cli.check.finding import (
    NOTE,
    OK,
    PROBLEM,
    WARNING,
    Book,
    Finding,
    Severity,
    Shell,
)
from chasquimq.cli.check.server import number
from chasquimq.cli.render import size
from chasquimq.store.exam.right import Rights
from chasquimq.store.exam.server import ServerFacts, Slow

KINDS: dict[str, Severity] = {
    "server.latency": OK,
    "server.slow": WARNING,
    "server.jitter": NOTE,
    "server.slow-script": WARNING,
    "server.slow-command": NOTE,
    "server.clock-skew": WARNING,
    "server.clients-near": WARNING,
    "server.idle-timeout": WARNING,
    "server.output-buffer": WARNING,
    "server.plain-tcp": WARNING,
    "server.tls-unverified": WARNING,
    "server.no-password": WARNING,
    "server.rights": OK,
    "server.rights-missing": PROBLEM,
    "server.rights-keys": PROBLEM,
    "server.rights-extra": NOTE,
    "server.other-database": NOTE,
}

SLOW_MS, JITTER_MS = 20.0, 100.0
SLOW_SCRIPT_US = 100_000
SKEW_MS = 1_000
CLIENTS = 0.8
BUFFER = 64 << 20  # what a read of 64 jobs of a megabyte brings


def check_access(
    facts: ServerFacts, address: Address, shell: Shell, rights: Rights | None = None
) -> list[Finding]:
    book = Book(KINDS)
    _latency(book, facts, shell)
    _slow(book, facts.slow or (), shell)
    _clock(book, facts.skew_ms)
    _limits(book, facts, shell)
    _wire(book, address, shell)
    if rights is not None:
        _rights(book, rights, shell)
    if facts.info is not None:
        _database(book, facts, address, shell)
    return book.found


def _latency(book: Book, facts: ServerFacts, shell: Shell) -> None:
    pings = sorted(facts.pings_ms)
    if not pings:
        return
    middle, most = share_of(pings, 0.5), pings[-1]
    numbers: dict[str, Any] = {
        "p50_ms": round(middle, 3),
        "p99_ms": round(share_of(pings, 0.99), 3),
        "max_ms": round(most, 3),
        "pings": len(pings),
        "own_pause_ms": round(facts.pause_ms, 3),
    }
    told = f"{middle:.1f} ms in the middle, {most:.1f} ms at the most, of {len(pings)} pings"
    if middle >= SLOW_MS:
        book.add(
            "server.slow",
            f"answers take {told}: every add, read and ack waits as long",
            fix=shell.redis("--latency-history"),
            **numbers,
        )
    elif most >= JITTER_MS:
        own = facts.pause_ms >= most / 2
        whose = "this machine itself pauses as long" if own else "the server, or the way to it"
        book.add(
            "server.jitter",
            f"answers take {told}; {whose}",
            fix=shell.redis("--intrinsic-latency", 10) if own else shell.redis("--latency"),
            **numbers,
        )
    else:
        book.add("server.latency", f"answers take {told}", **numbers)


def share_of(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def _slow(book: Book, rows: Sequence[Slow], shell: Shell) -> None:
    long = [row for row in rows if row.micros >= SLOW_SCRIPT_US]
    for code, mine in (("server.slow-script", True), ("server.slow-command", False)):
        some = [row for row in long if (row.script is not None) is mine]
        if not some:
            continue
        top = max(some, key=lambda row: row.micros)
        who = f"our script {top.script}" if mine else f"the command {top.command!r}"
        why = (
            "the queue has more than it can carry, or the server is short of CPU"
            if mine
            else "nobody is served meanwhile, neither adds nor leases"
        )
        book.add(
            code,
            f"{who} took {top.micros / 1000:.0f} ms ({len(some)} like it in the slow log): {why}",
            fix=shell.redis("SLOWLOG", "GET", 10),
            rows=[{"command": row.script or row.command, "ms": row.micros // 1000,
                   "age_s": row.age_s} for row in some[:10]],
        )  # fmt: skip


def _clock(book: Book, skew_ms: int | None) -> None:
    if skew_ms is None or abs(skew_ms) < SKEW_MS:
        return
    side = "ahead of" if skew_ms > 0 else "behind"
    book.add(
        "server.clock-skew",
        f"the server's clock is {abs(skew_ms) / 1000:.1f} s {side} this machine's. Delays, leases "
        "and schedules go by the server's alone; run_at, created_at_ms, ages and the filters of "
        "the DLQ compare both",
        fix="timedatectl set-ntp true",
        skew_ms=skew_ms,
    )


def _limits(book: Book, facts: ServerFacts, shell: Shell) -> None:
    info, config = facts.info or {}, facts.config or {}
    most = int(config.get("maxclients", "0")) or number(info, "maxclients")
    now = number(info, "connected_clients")
    if most and now >= CLIENTS * most:
        book.add(
            "server.clients-near",
            f"{now} of at most {most} clients are connected: beyond it workers cannot come back "
            "after a break",
            fix=shell.config("maxclients", str(2 * most)),
            clients=now,
            maxclients=most,
        )
    idle_s = int(config.get("timeout", "0"))
    if idle_s:
        book.add(
            "server.idle-timeout",
            f"timeout {idle_s}: the server hangs up on clients that are quiet for {idle_s} s. "
            "Blocked readers are spared; a producer that adds in that moment does not know "
            "whether its job is in",
            fix=shell.config("timeout", "0"),
            timeout_s=idle_s,
        )
    words = config.get("client-output-buffer-limit", "").split()
    hard = int(words[words.index("normal") + 1]) if "normal" in words else 0
    if 0 < hard < BUFFER:
        book.add(
            "server.output-buffer",
            f"a client is cut off when {size(hard)} wait for it: a read of many large jobs, or a "
            "page of the DLQ, never arrives",
            fix=shell.config("client-output-buffer-limit", "normal 0 0 0"),
            limit_bytes=hard,
        )


def is_local(address: Address) -> bool:
    """Is it on this machine, so that nobody can listen in between?"""
    host = address.endpoint.host
    if address.endpoint.path is not None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _wire(book: Book, address: Address, shell: Shell) -> None:
    if address.tls and address.insecure:
        book.add(
            "server.tls-unverified",
            f"certificates of {address} are not verified (insecure=true): anybody in between can "
            "read and change every job",
            fix=f"export CHASQUI_REDIS_URL='{str(address).partition('?')[0]}"
            "?ssl_ca_certs=/path/to/ca.pem'",
        )
    if is_local(address):
        return
    if not address.tls:
        book.add(
            "server.plain-tcp",
            f"jobs and passwords travel to {address.endpoint} in the clear",
            fix=f"export CHASQUI_REDIS_URL=rediss+cluster://{address.endpoint}"
            if shell.follows_cluster
            else f"export CHASQUI_REDIS_URL=rediss://{address.endpoint}/{address.db}",
        )
    if address.password is None:
        book.add(
            "server.no-password",
            f"{address.endpoint} lets everybody in who can reach it",
            fix=shell.redis("ACL", "SETUSER", "default", "resetpass", ">A-LONG-PASSWORD"),
        )


def _rights(book: Book, rights: Rights, shell: Shell) -> None:
    user, set_user = rights.user, ("ACL", "SETUSER", rights.user)
    if rights.missing:
        book.add(
            "server.rights-missing",
            f"the user {user!r} may not run {', '.join(rights.missing)}: a move that needs one of "
            "them stops half-way, or never begins",
            fix=shell.redis(*set_user, *[f"+{name}" for name in rights.missing]),
            user=user,
            missing=list(rights.missing),
        )
    if rights.keys:
        book.add(
            "server.rights-keys",
            f"the user {user!r} may not use all keys or channels of "
            f"{', '.join(map(repr, rights.keys))}",
            fix=shell.redis(
                *set_user,
                *[rule for name in rights.keys for rule in patterns(name)],
            ),
            user=user,
            queues=list(rights.keys),
        )
    if rights.extra:
        book.add(
            "server.rights-extra",
            f"the user {user!r} may not run {', '.join(rights.extra)}; only durable adds (wait, "
            "waitaof, config|get) and a thorough doctor need them",
            fix=shell.redis(*set_user, *[f"+{name}" for name in rights.extra]),
            user=user,
            missing=list(rights.extra),
        )
    if not (rights.missing or rights.keys):
        book.add(
            "server.rights",
            f"the user {user!r} may do all that queues and workers need ({rights.tried} commands, "
            f"{'asked of the server' if rights.asked else 'tried without effect'})",
            user=user,
            tried=rights.tried,
        )


def patterns(queue: str) -> tuple[str, str]:
    """ACL rules for a queue's keys and channel; what is a pattern's sign in its name is meant."""
    name = "".join(f"\\{sign}" if sign in "*?[]\\^" else sign for sign in queue)
    return f"~{{chasqui:{name}}}:*", f"&{{chasqui:{name}}}:*"


def _database(book: Book, facts: ServerFacts, address: Address, shell: Shell) -> None:
    spaces = {name: value for name, value in (facts.info or {}).items() if name[2:].isdigit()
              and name.startswith("db")}  # fmt: skip
    if facts.keys == 0 and spaces:
        others = ", ".join(sorted(spaces))
        first = min(int(name[2:]) for name in spaces)
        book.add(
            "server.other-database",
            f"database {address.db} is empty, while {others} has keys: is it the right one?",
            fix=f"export CHASQUI_REDIS_URL=redis://{address.endpoint}/{first}",
            keyspace=spaces,
        )
