"""A queue: whether its jobs go on, and what lies about in it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from chasquimq.cli.check import schedule, weight
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
from chasquimq.cli.render import ago
from chasquimq.config import DeadOptions, EventOptions, ProducerOptions, StreamOptions
from chasquimq.store.exam.queue import KINDS as KEY_KINDS
from chasquimq.store.exam.queue import LATELY, Holder, Patience, QueueFacts
from chasquimq.text import shown

KINDS: dict[str, Severity] = {
    "queue.well": OK,
    "queue.not-looked-at": WARNING,
    "queue.unknown": WARNING,
    "queue.name-refused": WARNING,
    "queue.name-quoted": NOTE,
    "queue.walk-cut": NOTE,
    "queue.wrong-kind": PROBLEM,
    "queue.paused": NOTE,
    "queue.no-workers": PROBLEM,
    "queue.backlog": WARNING,
    "queue.stuck": PROBLEM,
    "queue.ghosts": WARNING,
    "queue.dead-consumers": NOTE,
    "queue.several-groups": WARNING,
    "queue.other-group": WARNING,
    "queue.near-limit": WARNING,
    "queue.full": PROBLEM,
    "queue.idmp-small": WARNING,
    "queue.dead": NOTE,
    "queue.dead-growing": WARNING,
    "queue.dead-full": WARNING,
    "queue.events-large": NOTE,
}

BACKLOG_MS = 600_000
NEAR = 0.8
GROWING = 10  # dead jobs in the last hour
EXAMPLES = 5
LIMIT = ProducerOptions().max_stream_len
DEAD_LIMIT = DeadOptions().max_len
EVENTS = 2 * EventOptions().max_len
IDMP = StreamOptions()


def check_queue(
    facts: QueueFacts, shell: Shell, patience: Patience, *, native: bool = False
) -> list[Finding]:
    book = Book(KINDS, facts.queue)
    _quoted(book, facts.queue)
    if facts.trouble is not None:
        book.add("queue.not-looked-at", f"not all of it could be looked at: {facts.trouble}")
    if not facts.exists:
        if facts.trouble is None:
            book.add(
                "queue.unknown",
                "there is nothing under this name: nobody has added to it, or it is misspelt",
                fix=shell.chasqui("inspect"),
            )
        return book.found
    for name, kind in facts.wrong.items():
        key = f"{{chasqui:{facts.queue}}}:{name}"
        book.add(
            "queue.wrong-kind",
            f"the key {key} is a {kind} where a {KEY_KINDS[name]} belongs: every command on it "
            "fails",
            fix=shell.redis("RENAME", key, f"{key}:aside"),
            key=key,
            kind=kind,
        )
    _flow(book, facts, shell, patience)
    _holders(book, facts, shell, patience)
    _stream(book, facts, shell, native)
    _streams(book, facts, shell)
    book.found += schedule.check_schedule(facts, shell)
    book.found += weight.check_weight(facts, shell)
    if book.well and facts.trouble is None:
        many = facts.counts
        told = (
            f"{many.waiting} waiting, {many.running} running, {many.delayed} delayed, "
            f"{many.dead} dead, {many.repeatables} repeatable"
        )
        book.add("queue.well", told, **_numbers(facts))
    return book.found


def _numbers(facts: QueueFacts) -> dict[str, Any]:
    many = facts.counts
    return {
        "waiting": many.waiting,
        "running": many.running,
        "delayed": many.delayed,
        "dead": many.dead,
        "repeatables": many.repeatables,
        "consumers": len(facts.holders),
    }


def check_names(foreign: Sequence[bytes], complete: bool, scanned: int) -> list[Finding]:
    """What is about no single queue: names that are none, and a walk that did not get through."""
    book = Book(KINDS)
    if foreign:
        some = [shown(name.decode(errors="backslashreplace"), 40) for name in foreign[:EXAMPLES]]
        book.add(
            "queue.name-refused",
            f"names in this database that no queue of ours can have (braces, control characters, "
            f"no UTF-8): {len(foreign)}, {', '.join(some)}",
            names=[name.decode(errors="backslashreplace") for name in foreign[:100]],
        )
    if not complete:
        book.add(
            "queue.walk-cut",
            f"only about {scanned:,} keys were looked at; there may be more queues",
            fix="chasqui doctor QUEUE",
            scanned=scanned,
        )
    return book.found


def _quoted(book: Book, name: str) -> None:
    if shlex.quote(name) != name:  # so has every name with a sign of patterns
        book.add(
            "queue.name-quoted",
            "its name must be quoted in a shell, and *, ?, [ and \\ in it escaped in ACL rules "
            "and patterns",
            fix=shlex.join(["chasqui", "inspect", name]),
        )


def _flow(book: Book, facts: QueueFacts, shell: Shell, patience: Patience) -> None:
    many, age_ms = facts.counts, facts.counts.oldest_waiting_ms
    if facts.paused is not None:
        note = f": {shown(facts.paused, 80)}" if facts.paused not in ("", "1") else ""
        book.add(
            "queue.paused",
            f"paused{note}, with {many.waiting:,} waiting; producers go on",
            fix=shell.chasqui("resume", facts.queue),
            note=facts.paused,
            waiting=many.waiting,
        )
        return
    if not many.waiting or age_ms is None:
        return
    alive = [one for one in facts.holders if one.idle_ms < patience.stuck_ms]
    numbers: dict[str, Any] = {
        "waiting": many.waiting,
        "oldest_waiting_ms": age_ms,
        "consumers": len(alive),
    }
    if not alive and age_ms >= patience.stuck_ms:
        who = (
            f"no worker of the group {facts.group!r} has spoken for {ago(patience.stuck_ms)}"
            if facts.group in facts.groups
            else f"there never was a worker of the group {facts.group!r}"
        )
        book.add(
            "queue.no-workers",
            f"{many.waiting:,} waiting, the next one for {ago(age_ms)}, and {who}",
            fix="chasqui worker YOUR.MODULE:worker",
            **numbers,
        )
    elif age_ms >= BACKLOG_MS:
        book.add(
            "queue.backlog",
            f"{many.waiting:,} waiting, the next one for {ago(age_ms)}: the workers do not keep up "
            f"(there are {len(alive)})",
            fix="chasqui worker YOUR.MODULE:worker --processes 2",
            **numbers,
        )


def _holders(book: Book, facts: QueueFacts, shell: Shell, patience: Patience) -> None:
    repair = shell.chasqui("doctor", facts.queue, options=["--fix"])
    stuck = [one for one in facts.holders if one.stuck]
    if stuck and facts.paused is None:
        total, oldest = sum(one.stuck for one in stuck), max(one.oldest_ms for one in stuck)
        book.add(
            "queue.stuck",
            f"deliveries that nobody renews and nobody takes over: {total:,}, for up to "
            f"{ago(oldest)}, by {_names(stuck)}. A worker of this group would run them",
            fix="chasqui worker YOUR.MODULE:worker",
            holders=[{"name": one.name, "stuck": one.stuck, "silent_ms": one.idle_ms}
                     for one in stuck[:20]],
        )  # fmt: skip
    ghosts = [one for one in facts.holders if one.ghosts]
    if ghosts:
        total, ripe = sum(one.ghosts for one in ghosts), sum(one.ripe for one in ghosts)
        whose = ""
        if ripe < total:
            whose = f"; {total - ripe:,} of them belong to a worker that may still run them"
        book.add(
            "queue.ghosts",
            f"pending entries without a body (trimmed, or deleted by hand): {total:,}, held by "
            f"{_names(ghosts)}. Nobody can run them, and each claim walks past them{whose}",
            fix=repair if ripe else None,
            remedy="ghosts" if ripe else None,
            ghosts=total,
            removable=ripe,
        )
    gone = [one for one in facts.holders if not one.pending and one.idle_ms > patience.silent_ms]
    if gone:
        book.add(
            "queue.dead-consumers",
            f"consumers that hold nothing and have been silent for more than "
            f"{ago(patience.silent_ms)}: {len(gone):,}, {_names(gone)}",
            fix=repair,
            remedy="consumers",
            consumers=[one.name for one in gone[:100]],
            count=len(gone),
        )


def _names(some: Sequence[Holder]) -> str:
    named = [f"{shown(one.name, 40)} (silent for {ago(one.idle_ms)})" for one in some[:3]]
    return ", ".join(named) + (f" and {len(some) - 3} more" if len(some) > 3 else "")


def _stream(book: Book, facts: QueueFacts, shell: Shell, native: bool) -> None:
    others = [name for name in facts.groups if name != facts.group]
    key = f"{{chasqui:{facts.queue}}}:stream"
    named = ", ".join(repr(shown(name, 40)) for name in others[:5])
    if others and facts.group not in facts.groups:
        book.add(
            "queue.other-group",
            f"there is no group {facts.group!r} here, but {named}: if your workers' is one, say so",
            fix=shell.chasqui("doctor", facts.queue, options=["--group", others[0]]),
            groups=list(facts.groups),
        )
    elif others:
        book.add(
            "queue.several-groups",
            f"beside {facts.group!r} there are other groups: {named}. An ack deletes the job for "
            "all of them, so they do not each see every job. Destroy those that nobody uses",
            fix=shell.redis("XINFO", "GROUPS", key),
            groups=list(facts.groups),
        )
    limit: dict[str, Any] = {"length": facts.length, "default_limit": LIMIT}
    drain = "chasqui worker YOUR.MODULE:worker --processes 2"
    if facts.length >= LIMIT:
        book.add(
            "queue.full",
            f"jobs in the stream: {facts.length:,}. A producer with the default max_stream_len "
            f"({LIMIT:,}) is refused",
            fix=drain,
            **limit,
        )
    elif facts.length >= NEAR * LIMIT:
        book.add(
            "queue.near-limit",
            f"jobs in the stream: {facts.length:,}, {facts.length / LIMIT:.0%} of the default "
            "max_stream_len; at the limit producers are refused",
            fix=drain,
            **limit,
        )
    size = facts.stream.get("idmp-maxsize", IDMP.idmp_max_size)
    seconds = facts.stream.get("idmp-duration", IDMP.idmp_duration_s)
    if native and (size < IDMP.idmp_max_size or seconds < IDMP.idmp_duration_s):
        ours = ("IDMP-MAXSIZE", IDMP.idmp_max_size, "IDMP-DURATION", IDMP.idmp_duration_s)
        book.add(
            "queue.idmp-small",
            f"the stream remembers {size} added ids of each producer for {seconds} s, less than we "
            "set up; an add that is sent again later than that doubles. Changing it forgets all "
            "that are remembered: do it while nobody adds",
            fix=shell.redis("XCFGSET", key, *ours),
            maxsize=size,
            duration_s=seconds,
        )


def _streams(book: Book, facts: QueueFacts, shell: Shell) -> None:
    dead, lately = facts.counts.dead, facts.dead_lately
    look = shell.chasqui("dlq peek", facts.queue)
    numbers: dict[str, Any] = {"dead": dead, "last_hour": lately, "default_limit": DEAD_LIMIT}
    hour = f"{lately}{'+' if lately >= LATELY else ''} of them in the last hour"
    if dead >= NEAR * DEAD_LIMIT:
        book.add(
            "queue.dead-full",
            f"dead jobs: {dead:,}, {hour}; that is {dead / DEAD_LIMIT:.0%} of the default "
            "dlq_max_stream_len, beyond which a trimming worker throws the oldest away",
            fix=shell.chasqui("dlq export", facts.queue),
            **numbers,
        )
    elif lately >= GROWING:
        book.add("queue.dead-growing", f"dead jobs: {dead:,}, {hour}", fix=look, **numbers)
    elif dead:
        book.add("queue.dead", f"dead jobs: {dead:,}, {hour}", fix=look, **numbers)
    if facts.events >= EVENTS:
        key = f"{{chasqui:{facts.queue}}}:events"
        book.add(
            "queue.events-large",
            f"events kept: {facts.events:,}, twice the default or more",
            fix=shell.redis("XTRIM", key, "MAXLEN", "~", EventOptions().max_len),
            events=facts.events,
        )
