"""The server: what it is, whether it keeps what we give it, and whether it has room. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from chasquimq.cli.render import size
from chasquimq.store.exam.server import ServerFacts
from chasquimq.wire.info import CRASHING

KINDS: dict[str, Severity] = {
    "server.unreachable": PROBLEM,
    "server.no-answer": PROBLEM,
    "server.version": OK,
    "server.forced-dialect": NOTE,
    "server.crashing-version": PROBLEM,
    "server.too-old": PROBLEM,
    "server.idmp-forgets": WARNING,
    "server.cluster": PROBLEM,
    "server.replica": PROBLEM,
    "server.hidden": NOTE,
    "server.eviction": OK,
    "server.eviction-allkeys": PROBLEM,
    "server.eviction-volatile": WARNING,
    "server.memory": OK,
    "server.memory-unlimited": NOTE,
    "server.memory-near-full": WARNING,
    "server.memory-full": PROBLEM,
    "server.fragmented": WARNING,
    "server.persistence": OK,
    "server.no-persistence": PROBLEM,
    "server.snapshots-only": WARNING,
    "server.fsync-never": WARNING,
    "server.save-failed": PROBLEM,
    "server.aof-failed": PROBLEM,
    "server.aof-preamble-off": WARNING,
    "server.aof-not-rewritten": NOTE,
    "server.stream-nodes": WARNING,
}

NEAR, FULL = 0.75, 0.95  # of maxmemory
EMPTY_FILE = 1024  # bytes: less than that a server without data writes, too
FRAGMENTED, WASTED = 1.5, 100 << 20
NODE_BYTES, NODE_ENTRIES = 4096, 100  # the defaults
WIDER = 10  # so many times the default is too much
IDMP_FLOOR = (8, 6, 2)


def check_server(facts: ServerFacts, shell: Shell, forced: str | None = None) -> list[Finding]:
    book = Book(KINDS)
    if not facts.answers:
        book.add(
            "server.no-answer",
            f"{facts.unanswered} had no answer: {facts.trouble}. What follows it was not asked",
            fix=shell.redis("--latency"),
            question=facts.unanswered,
        )
    if facts.hidden:
        book.add(
            "server.hidden",
            f"this server does not tell us {', '.join(facts.hidden)}: what depends on it was not "
            "looked at",
            hidden=list(facts.hidden),
        )
    if facts.info is not None:
        _kind(book, facts, shell, forced)
        _role(book, facts.info, shell)
    _eviction(book, facts, shell)
    if facts.info is not None:
        _memory(book, facts.info, shell)
        _persistence(book, facts, shell)
        _journal(book, facts.info, shell)
    if facts.config is not None:
        _nodes(book, facts.config, shell)
    return book.found


def unreachable(words: str, shell: Shell) -> list[Finding]:
    book = Book(KINDS)
    book.add("server.unreachable", words, fix=shell.redis("PING"))
    return book.found


def _kind(book: Book, facts: ServerFacts, shell: Shell, forced: str | None) -> None:
    info = facts.info or {}
    kind, text = server_kind(info), server_version(info)
    number = _numbers(text)
    name = f"{kind} {text}"
    if kind == "Redis" and text in CRASHING:
        book.add(
            "server.crashing-version",
            f"{name} crashes when several jobs are acked at once (XACKDEL); we refuse it. "
            "Install Redis 8.6.2 or newer",
            fix=shell.redis("INFO", "server"),
            version=text,
        )
    elif number < ((8,) if kind == "Valkey" else (7,)):
        book.add(
            "server.too-old",
            f"{name} lacks commands that our scripts need: Redis 7.0, Valkey 8 or newer",
            fix=shell.redis("INFO", "server"),
            version=text,
        )
    elif facts.knows_idmp and kind == "Redis" and number < IDMP_FLOOR:
        book.add(
            "server.idmp-forgets",
            f"{name} forgets which jobs were added when it rewrites its append-only file: an add "
            "that is sent again may double. Install Redis 8.6.2 or newer",
            fix=shell.redis("INFO", "server"),
            version=text,
        )
    asked = facts.knows_idmp
    if asked is not None:
        dialect = forced or ("native" if asked else "portable")
        why = "it has XCFGSET and IDMP" if asked else "it has no XCFGSET: adds and acks are scripts"
        if forced:
            why = "forced"
            book.add(
                "server.forced-dialect",
                f"the dialect {forced} is forced by $CHASQUI_DIALECT; the server would be "
                f"spoken to in {'native' if asked else 'portable'}",
                fix="unset CHASQUI_DIALECT",
                dialect=forced,
            )
        book.add(
            "server.version",
            f"{name}, spoken to in the {dialect} dialect ({why})",
            version=text,
            kind=kind.lower(),
            dialect=dialect,
        )


def server_kind(info: Mapping[str, str]) -> str:
    return "Valkey" if info.get("server_name") == "valkey" else "Redis"


def server_version(info: Mapping[str, str]) -> str:
    """Valkey calls itself an old Redis, too."""
    return info.get("valkey_version") or info.get("redis_version", "?")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _role(book: Book, info: Mapping[str, str], shell: Shell) -> None:
    in_cluster = info.get("cluster_enabled") == "1" or info.get("redis_mode") == "cluster"
    if in_cluster and not shell.follows_cluster:
        book.add(
            "server.cluster",
            "this is a node of a cluster, and the address leads to it alone: queues whose slots "
            "lie on other nodes are refused (MOVED), and so is every queue that moves",
            fix=shell.cluster(),
        )
    if info.get("role") == "slave":
        where = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        link = info.get("master_link_status", "?")
        book.add(
            "server.replica",
            f"this is a replica of {where} (link {link}): it refuses every add and every ack. "
            "Give the address of the master",
            fix=f"export CHASQUI_REDIS_URL=redis://{where}",
            master=where,
            link=link,
        )


def _eviction(book: Book, facts: ServerFacts, shell: Shell) -> None:
    policy = (facts.config or {}).get("maxmemory-policy") or (facts.info or {}).get(
        "maxmemory_policy"
    )
    if policy is None:
        return
    mend = shell.config("maxmemory-policy", "noeviction")
    if policy.startswith("allkeys-"):
        book.add(
            "server.eviction-allkeys",
            f"maxmemory-policy {policy}: at its limit the server evicts whole queues, with every "
            "job in them; we refuse it",
            fix=mend,
            policy=policy,
        )
    elif policy != "noeviction":
        book.add(
            "server.eviction-volatile",
            f"maxmemory-policy {policy}: at its limit the server evicts what has an expiry: "
            "results, locks, and the markers that keep ids unique, so that jobs double",
            fix=mend,
            policy=policy,
        )
    else:
        book.add("server.eviction", "nothing is evicted (noeviction)", policy=policy)


def _memory(book: Book, info: Mapping[str, str], shell: Shell) -> None:
    used, limit = number(info, "used_memory"), number(info, "maxmemory")
    whole = limit or number(info, "total_system_memory")
    share = used / whole if whole else 0.0
    of = "maxmemory" if limit else "the machine's memory"
    told = f"{size(used)} used, {share:.0%} of {of} ({size(whole)})"
    numbers: dict[str, Any] = {"used_bytes": used, "limit_bytes": limit, "share": round(share, 3)}
    more = shell.config("maxmemory", str(2 * limit)) if limit else shell.redis("MEMORY", "STATS")
    if share >= FULL:
        after = "adds are refused, workers go on" if limit else "the system may kill the server"
        book.add("server.memory-full", f"{told}: {after}", fix=more, **numbers)
    elif share >= NEAR:
        book.add("server.memory-near-full", f"{told}: let workers drain it, or give it more",
                 fix=more, **numbers)  # fmt: skip
    elif limit:
        book.add("server.memory", told, **numbers)
    else:
        room = max(size_of_room(info), 1 << 20)
        book.add(
            "server.memory-unlimited",
            f"{told}. maxmemory is not set: a queue that grows takes what the machine has, and "
            "the system kills the server, where adds could be refused",
            fix=shell.config("maxmemory", str(room)),
            **numbers,
        )
    ratio = _float(info.get("mem_fragmentation_ratio", "0"))
    wasted = number(info, "mem_fragmentation_bytes")
    if ratio >= FRAGMENTED and wasted >= WASTED:
        book.add(
            "server.fragmented",
            f"memory is fragmented: {size(wasted)} are taken and not used (ratio {ratio:.2f})",
            fix=shell.redis("MEMORY", "PURGE"),
            ratio=ratio,
            wasted_bytes=wasted,
        )


def size_of_room(info: Mapping[str, str]) -> int:
    """Three quarters of the machine's memory: forks and buffers need the rest."""
    return number(info, "total_system_memory") * 3 // 4


def _persistence(book: Book, facts: ServerFacts, shell: Shell) -> None:
    info, config = facts.info or {}, facts.config
    aof = info.get("aof_enabled") == "1"
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        refuses = config is None or config.get("stop-writes-on-bgsave-error", "yes") == "yes"
        then = "so it refuses every write (MISCONF)" if refuses else "so a restart loses more"
        book.add(
            "server.save-failed",
            f"the last snapshot failed, {then}: is the disk full?",
            fix=shell.redis("BGSAVE"),
        )
    for field in ("aof_last_write_status", "aof_last_bgrewrite_status"):
        if aof and info.get(field, "ok") != "ok":
            book.add(
                "server.aof-failed",
                f"the append-only file is in trouble ({field} is {info[field]}): is the disk full?",
                fix=shell.redis("BGREWRITEAOF"),
                status=field,
            )
    if config is None:
        if aof:
            book.add("server.persistence", "it keeps an append-only file", appendonly=True)
        return
    fsync = config.get("appendfsync", "?")
    on = shell.config("appendonly", "yes")
    if not aof and not config.get("save"):
        book.add(
            "server.no-persistence",
            "nothing is written to disk: a restart of the server loses every job",
            fix=on,
        )
    elif not aof:
        book.add(
            "server.snapshots-only",
            f"only snapshots are kept (save {config['save']!r}): a restart loses what came in "
            "since the last one, and runs again what was done since",
            fix=on,
            save=config["save"],
        )
    elif fsync == "no":
        book.add(
            "server.fsync-never",
            "appendfsync no: the system decides when jobs reach the disk; a power cut loses up to "
            "half a minute",
            fix=shell.config("appendfsync", "everysec"),
        )
    else:
        loses = "nothing that was answered" if fsync == "always" else "at most the last second"
        book.add(
            "server.persistence",
            f"append-only file, appendfsync {fsync}: a power cut loses {loses}",
            appendonly=True,
            appendfsync=fsync,
        )
    if aof and facts.knows_idmp and config.get("aof-use-rdb-preamble") == "no":
        book.add(
            "server.aof-preamble-off",
            "aof-use-rdb-preamble no: when the append-only file is rewritten the server forgets "
            "the ids of jobs that are done; an add that is sent again may double",
            fix=shell.config("aof-use-rdb-preamble", "yes"),
        )


def _journal(book: Book, info: Mapping[str, str], shell: Shell) -> None:
    """A file that Redis found torn inside a transaction looks like any other until it is rewritten
    (`docs/explanation/delivery.md`), so it can only be told that it was not."""
    found_one = number(info, "aof_base_size") > EMPTY_FILE
    is_on = info.get("aof_enabled") == "1" and server_kind(info) == "Redis"
    if is_on and found_one and info.get("aof_rewrites") == "0":
        book.add(
            "server.aof-not-rewritten",
            "it has not rewritten its append-only file since it started. If it had crashed before, "
            "and its log says that the file was truncated, do it before it may crash again",
            fix=shell.redis("BGREWRITEAOF"),
        )


def _nodes(book: Book, config: Mapping[str, str], shell: Shell) -> None:
    defaults = {"stream-node-max-bytes": NODE_BYTES, "stream-node-max-entries": NODE_ENTRIES}
    for name, usual in defaults.items():
        value = int(config.get(name, usual))
        if not 0 < value <= WIDER * usual:
            book.add(
                "server.stream-nodes",
                f"{name} is {value or '0 (no limit)'}: the memory of done jobs is freed a node at "
                "a time, when the last job of a node is done, and reads inside a node are slow",
                fix=shell.config(name, str(usual)),
                setting=name,
                value=value,
            )


def number(info: Mapping[str, str], name: str) -> int:
    text = info.get(name, "")
    return int(text) if text.lstrip("-").isdigit() else 0


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
