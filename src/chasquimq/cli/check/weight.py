"""What the keys of a queue weigh, by families, and those that would stay for ever. Pure."""

from __future__ import annotations

from chasquimq.cli.check.finding import NOTE, OK, WARNING, Book, Finding, Severity, Shell
from chasquimq.cli.render import size
from chasquimq.store.exam.queue import QueueFacts
from chasquimq.store.survey import EXPIRING

KINDS: dict[str, Severity] = {
    "queue.bytes": OK,
    "queue.large": WARNING,
    "queue.sparse-stream": NOTE,
    "queue.never-expire": WARNING,
    "queue.index-lost": NOTE,
}

LARGE = 256 << 20  # one key of this size makes copying, moving and deleting it slow
SPARSE = 64 << 20
ROOM = 100  # entries that a node of a stream has room for
USED = 0.1


def check_weight(facts: QueueFacts, shell: Shell) -> list[Finding]:
    book = Book(KINDS, facts.queue)
    weights = {name: one.weight for name, one in facts.families.items() if one.count}
    if weights:
        ordered = sorted(weights.items(), key=lambda one: -one[1])
        told = ", ".join(f"{name} {size(weight)}" for name, weight in ordered)
        book.add(
            "queue.bytes",
            f"{size(sum(weights.values()))} in {sum(one.count for one in facts.families.values())} "
            f"keys: {told}",
            families={
                name: {"keys": one.count, "bytes": one.weight}
                for name, one in facts.families.items()
            },
        )
    for name, one in facts.families.items():
        if one.heaviest >= LARGE:
            key = one.names[0].decode(errors="backslashreplace")
            book.add(
                "queue.large",
                f"the largest key of {name} takes {size(one.heaviest)}",
                fix=shell.redis("MEMORY", "USAGE", key) if one.count == 1 else None,
                family=name,
                bytes=one.heaviest,
            )
        if name in EXPIRING and one.lasting:
            key = one.names[0].decode(errors="backslashreplace")
            book.add(
                "queue.never-expire",
                f"{one.lasting} of {min(one.count, len(one.names))} keys of {name} that were "
                "looked at never expire; all that we write do",
                fix=shell.redis("TTL", key),
                family=name,
                keys=one.count,
            )
    _sparse(book, facts, shell)
    if facts.lost_indexes:
        book.add(
            "queue.index-lost",
            f"side-indexes that lead to no delayed job (it was moved or removed by hand): "
            f"{len(facts.lost_indexes):,}. They expire an hour after it would have been due",
            fix=shell.chasqui("doctor", facts.queue, options=["--fix"]),
            remedy="indexes",
            count=len(facts.lost_indexes),
        )
    return book.found


def _sparse(book: Book, facts: QueueFacts, shell: Shell) -> None:
    """A node of a stream is freed when its last entry goes: a few old ones may hold much."""
    family = facts.families.get("stream")
    nodes = facts.stream.get("radix-tree-keys", 0)
    if family is None or not nodes or family.weight < SPARSE:
        return
    used = facts.length / (nodes * ROOM)
    if used < USED:
        book.add(
            "queue.sparse-stream",
            f"the stream takes {size(family.weight)} for {facts.length} entries: {nodes} nodes "
            f"are {used:.0%} full, because single old entries keep them. The oldest tell why",
            fix=shell.redis("XRANGE", f"{{chasqui:{facts.queue}}}:stream", "-", "+", "COUNT", 1),
            nodes=nodes,
            used=round(used, 3),
        )
