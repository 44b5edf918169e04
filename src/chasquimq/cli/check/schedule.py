"""What a queue does later: delayed and repeatable jobs, and those who see to them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chasquimq.cli.check.finding import NOTE, PROBLEM, WARNING, Book, Finding, Severity, Shell
from chasquimq.cli.render import ago
from chasquimq.store.exam.queue import Broken, Lock, QueueFacts
from chasquimq.text import shown

KINDS: dict[str, Severity] = {
    "queue.delayed-stuck": PROBLEM,
    "queue.delayed-late": WARNING,
    "queue.lock-forever": PROBLEM,
    "queue.specs-stuck": PROBLEM,
    "queue.specs-late": WARNING,
    "queue.spec-unreadable": PROBLEM,
    "queue.spec-aside": WARNING,
    "queue.spec-paused": NOTE,
    "queue.spec-empty": WARNING,
    "queue.spec-unlisted": WARNING,
}

LATE_MS = 10_000  # a lock lives five seconds: whoever would do it has had its turn
VERY_LATE_MS = 60_000


def check_schedule(facts: QueueFacts, shell: Shell) -> list[Finding]:
    book = Book(KINDS, facts.queue)
    _leaders(book, facts, shell)
    _specs(book, facts, shell)
    return book.found


def _leaders(book: Book, facts: QueueFacts, shell: Shell) -> None:
    _late(
        book, facts.promoter, facts.overdue, facts.overdue_ms,
        ("queue.delayed-stuck", "queue.delayed-late"), "delayed jobs", "promoter",
    )  # fmt: skip
    _late(
        book, facts.scheduler, facts.specs_overdue, facts.specs_overdue_ms,
        ("queue.specs-stuck", "queue.specs-late"), "repeatable jobs", "scheduler",
    )  # fmt: skip
    for role, lock in (("promoter", facts.promoter), ("scheduler", facts.scheduler)):
        if lock is not None and lock.ttl_ms == -1:
            book.add(
                "queue.lock-forever",
                f"the {role}'s lock is held by {shown(lock.holder, 60)!r} and never expires: "
                "nobody else will ever take its place",
                fix=shell.chasqui("doctor", facts.queue, options=["--fix"]),
                remedy=f"{role}-lock",
                holder=lock.holder,
            )


def _late(
    book: Book, lock: Lock | None, count: int, late_ms: int, codes: tuple[str, str],
    what: str, role: str,
) -> None:  # fmt: skip
    if not count or late_ms < LATE_MS:
        return
    numbers: dict[str, Any] = {"overdue": count, "overdue_ms": late_ms}
    if lock is None:
        book.add(
            codes[0],
            f"overdue {what}: {count:,}, the first for {ago(late_ms)}, and nobody holds the "
            f"{role}'s lock: no worker runs, or none that would do it",
            fix="chasqui worker YOUR.MODULE:worker",
            **numbers,
        )
    elif late_ms >= VERY_LATE_MS:
        book.add(
            codes[1],
            f"overdue {what}: {count:,}, the first for {ago(late_ms)}, although "
            f"{shown(lock.holder, 60)!r} holds the {role}'s lock: see its log",
            holder=lock.holder,
            **numbers,
        )


def _specs(book: Book, facts: QueueFacts, shell: Shell) -> None:
    def remove(key: str) -> str:
        return shell.chasqui("repeatable remove", facts.queue, key)

    def resume(key: str) -> str:
        return shell.chasqui("repeatable resume", facts.queue, key)

    _broken(book, "queue.spec-unreadable", facts.unreadable,
            "repeatable jobs that cannot be read and never fire", remove)  # fmt: skip
    _broken(book, "queue.spec-aside", facts.aside,
            "repeatable jobs that could not be fired and were put aside", resume)  # fmt: skip
    if facts.spec_pauses:
        book.add(
            "queue.spec-paused",
            f"paused repeatable jobs: {facts.spec_pauses:,}",
            fix=shell.chasqui("repeatable list", facts.queue),
            paused=facts.spec_pauses,
        )
    unlisted = [key for key, recipe in facts.unlisted if recipe]
    empty = [*facts.empty_specs, *(key for key, recipe in facts.unlisted if not recipe)]
    if empty:
        book.add(
            "queue.spec-empty",
            f"repeatable jobs without a recipe, of which only a rest is left: {len(empty):,}, "
            f"{_keys(empty)}",
            fix=shell.chasqui("doctor", facts.queue, options=["--fix"]),
            remedy="specs",
            keys=[key.decode(errors="backslashreplace") for key in empty[:100]],
        )
    if unlisted:
        first = unlisted[0].decode(errors="backslashreplace")
        book.add(
            "queue.spec-unlisted",
            f"repeatable jobs with a recipe and no next fire, so that they never fire: "
            f"{len(unlisted):,}, {_keys(unlisted)}. Add them again, or remove them",
            fix=remove(first),
            keys=[key.decode(errors="backslashreplace") for key in unlisted[:100]],
        )


def _keys(some: Sequence[bytes]) -> str:
    named = [shown(key.decode(errors="backslashreplace"), 60) for key in some[:3]]
    return ", ".join(named) + (f" and {len(some) - 3} more" if len(some) > 3 else "")


def _broken(
    book: Book, code: str, some: Sequence[Broken], what: str, mend: Callable[[str], str]
) -> None:
    if some:
        first = some[0]
        book.add(
            code,
            f"{what}: {len(some):,}, the first {shown(first.key, 60)} ({shown(first.why, 120)})",
            fix=mend(first.key),
            specs=[{"key": one.key, "why": one.why} for one in some[:100]],
        )
