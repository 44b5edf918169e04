"""Which dead jobs a command is about: its filters, how many they mean, and what they missed."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Annotated, Literal

import typer

from chasquimq.cli.aside import hushed
from chasquimq.cli.exits import Exit
from chasquimq.cli.inspect import note_unknown
from chasquimq.cli.moment import read_time
from chasquimq.cli.near import near
from chasquimq.cli.progress import Tell, Worked, watched
from chasquimq.cli.render_dlq import By, Tally
from chasquimq.cli.shell import run_on
from chasquimq.policy.selection import Which, select
from chasquimq.queue import Queue
from chasquimq.text import shown

PAGE = 100
_PANEL = "Which dead jobs (all that are given must hold)"

Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id",
        metavar="ID",
        help="A job's id or a dlq id; may be repeated.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", help="The job's name; '': it has none.", rich_help_panel=_PANEL),
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", help="Why it lies there: retries_exhausted ...", rich_help_panel=_PANEL
    ),
]
ErrorType = Annotated[
    str | None,
    typer.Option("--error-type", help="What was raised: ValueError ...", rich_help_panel=_PANEL),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than",
        metavar="TIME",
        help="Died longer ago than that (2h, 7d), or before that moment (2026-11-16T09:00Z).",
        rich_help_panel=_PANEL,
    ),
]
NewerThan = Annotated[
    str | None,
    typer.Option(
        "--newer-than",
        metavar="TIME",
        help="Died no longer ago than that, or not before that moment.",
        rich_help_panel=_PANEL,
    ),
]

# (tell, door, at most so many, only count them) -> how many
Work = Callable[[Tell, Queue, int | None, bool], Awaitable[int]]


def read_which(
    ids: list[str] | None,
    name: str | None,
    reason: str | None,
    error_type: str | None,
    older_than: str | None,
    newer_than: str | None,
) -> Which:
    which: Which = {
        "ids": ids or None,
        "name": name,
        "reason": reason,
        "error_type": error_type,
        "older_than": None if older_than is None else read_time(older_than, "--older-than"),
        "newer_than": None if newer_than is None else read_time(newer_than, "--newer-than"),
    }
    select(which, "chasqui dlq")  # what is wrong with them is said before anything is asked
    return which


def means_all(which: Which) -> bool:
    return select(which, "chasqui dlq").means_all


def count(queue: str, url: str | None, work: Work, most: int | None, *, quiet: bool) -> int:
    """How many a command is about. `quiet`: what is to be said of the others is said later."""

    async def verb(door: Queue) -> Worked:
        return await watched("counting", None, "jobs", lambda tell: work(tell, door, most, True))

    log = logging.getLogger("chasquimq.queue")
    with hushed(log, logging.ERROR) if quiet else nullcontext():
        counted = run_on(queue, url, verb)
    if counted.stopped:
        raise typer.Exit(Exit.INTERRUPTED)
    return counted.done


def carry_out(queue: str, url: str | None, title: str, work: Work, most: int) -> Worked:
    async def verb(door: Queue) -> Worked:
        return await watched(title, most, "jobs", lambda tell: work(tell, door, most, False))

    return run_on(queue, url, verb)


async def tally(door: Queue, which: Which, by: By, total: int | None) -> tuple[Tally, Worked]:
    """The whole DLQ, counted page by page."""
    counted = Tally(by)

    async def walk(tell: Tell) -> int:
        after: str | None = None
        while page := await door.peek_dlq(PAGE, after=after, **which):
            counted.take(page)
            tell(counted.seen)
            if len(page) < PAGE:  # the end; what dies meanwhile is not chased
                break
            after = page[-1]["dlq_id"]
        return counted.seen

    return counted, await watched("counting", total, "jobs", walk)


def hint(queue: str, url: str | None, which: Which) -> None:
    """Where nobody was meant: say which names or error types there are, or that the ids, or the
    queue, are unknown."""
    if note_unknown(queue, url):
        return
    ids = which.get("ids")
    if ids and not any(value for option, value in which.items() if option != "ids"):
        spelled = ", ".join(shown(one, 80) for one in ids)
        print(f"no dead job has the id {spelled}", file=sys.stderr)
    for option, by in _SPELLED:
        word = which.get(option)
        if not word:
            continue

        async def known(door: Queue, by: By = by) -> list[str]:
            counted, _ = await tally(door, {}, by, (await door.counts()).dead)
            return [kind.value for kind in counted.kinds() if kind.value]

        words = run_on(queue, url, known)
        if words and word not in words:
            what = "name" if by == "name" else "error type"
            print(
                f"no dead job has the {what} '{shown(word, 80)}'; {near(word, words)}",
                file=sys.stderr,
            )


_Option = Literal["name", "error_type"]
_SPELLED: tuple[tuple[_Option, By], ...] = (("name", "name"), ("error_type", "error"))
