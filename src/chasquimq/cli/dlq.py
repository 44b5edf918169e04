"""`chasqui dlq`: look at dead jobs, bring them back, throw them away, carry them elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import Annotated, Any, cast

import msgspec
import typer

from chasquimq.cli import dead
from chasquimq.cli import render_dlq as render
from chasquimq.cli.ask import confirm
from chasquimq.cli.clock import server_ms
from chasquimq.cli.dead import ErrorType, Ids, Name, NewerThan, OlderThan, Reason, read_which
from chasquimq.cli.exits import Exit
from chasquimq.cli.file import Format, from_file, into_file
from chasquimq.cli.payload import MOST
from chasquimq.cli.progress import Tell, Worked, watched
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, DryRun, QueueName, RedisUrl, Yes, examples, run_on
from chasquimq.config import one_of
from chasquimq.errors import ConfigError
from chasquimq.policy.selection import Which
from chasquimq.queue import Queue

DEFAULT_LIMIT = 100  # of a replay
FILTERS = "--id, --name, --reason, --error-type, --older-than, --newer-than"

dlq = typer.Typer(
    name="dlq",
    help="Look at dead jobs, bring them back, throw them away, carry them elsewhere.",
    epilog=examples(
        "chasqui dlq peek mail                  the oldest dead jobs, and why they died",
        "chasqui dlq peek mail --by error       how many died of which error",
        "chasqui dlq replay mail --error-type TimeoutError",
        "chasqui dlq purge mail --older-than 30d --dry-run",
        "chasqui dlq export mail dead.jsonl",
    ),
)


@dlq.command(
    epilog=examples(
        "chasqui dlq peek mail                              the oldest twenty",
        "chasqui dlq peek mail --reason retries_exhausted --newer-than 1h --payload",
        "chasqui dlq peek mail --id welcome:42 --full       one, with all it holds",
        "chasqui dlq peek mail --by error                   the whole DLQ, counted",
        "chasqui dlq peek mail --json | jq '.entries[].error'",
    )
)
def peek(
    queue: QueueName,
    limit: Annotated[int, typer.Option(min=1, help="How many, the oldest first.")] = 20,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on behind this dlq id.")
    ] = None,
    ids: Ids = None,
    name: Name = None,
    reason: Reason = None,
    error_type: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="reason|error|name", help="Count the whole DLQ by this instead."),
    ] = None,
    payload: Annotated[bool, typer.Option("--payload", help="Show the jobs' data, too.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="One by one, with everything they hold.")
    ] = False,
    payload_limit: Annotated[
        int | None,
        typer.Option(min=0, help="How many characters of the data to show; 0: all."),
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show the oldest dead jobs, and why they died."""
    which = read_which(ids, name, reason, error_type, older_than, newer_than)
    screen = Screen(as_json=as_json)
    if by is not None:
        one_of("--by", by, ("reason", "error", "name"))
        _count_by(screen, queue, redis_url, which, cast(render.By, by))
        return

    async def look(door: Queue) -> tuple[int, int, list[dict[str, Any]]]:
        rows = await door.peek_dlq(limit, after=after, **which)
        return (await door.counts()).dead, await server_ms(redis_url, queue), rows

    dead, now_ms, rows = run_on(queue, redis_url, look)
    if as_json:
        told = [render.entry_json(row, payload=payload or full) for row in rows]
        screen.json({"queue": queue, "dead": dead, "entries": told})
        return
    if full and rows:
        most = MOST if payload_limit is None else payload_limit
        screen.show(*(render.full(queue, row, now_ms, payload=most) for row in rows))
    else:
        most = render.DATA_CHARS if payload_limit is None else payload_limit
        shown = most if payload or payload_limit is not None else None
        table = render.entries(queue, rows, now_ms, payload=shown, width=screen.width)
        screen.show(table, render.reasons(rows, dead))
    if len(rows) == limit and limit < dead:
        print(f"go on with --after {rows[-1]['dlq_id']}", file=sys.stderr)
    _hint(queue, redis_url, which, len(rows))


@dlq.command(
    epilog=examples(
        "chasqui dlq replay mail                          the oldest 100; it asks first",
        "chasqui dlq replay mail --id welcome:42 --yes    one job",
        "chasqui dlq replay mail --all --reason retries_exhausted --rate 50",
        "chasqui dlq replay mail --all --dry-run          how many would it be?",
    )
)
def replay(
    queue: QueueName,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, help=f"How many, the oldest first; default: {DEFAULT_LIMIT}.", show_default=False
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that are there now and that the filters mean.")
    ] = False,
    ids: Ids = None,
    name: Name = None,
    reason: Reason = None,
    error_type: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    rate: Annotated[
        float | None, typer.Option(metavar="N", help="So many per second, evenly.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Bring dead jobs back to their queue, with fresh attempts.

    What no job can be read in stays. Jobs that die meanwhile are left for the next time.
    """
    if everything and limit is not None:
        raise ConfigError("give --limit or --all, not both")
    which = read_which(ids, name, reason, error_type, older_than, newer_than)
    most = None if everything else limit or DEFAULT_LIMIT
    screen = Screen(as_json=as_json)
    about = _About(queue, redis_url, which, most)

    def work(tell: Tell, door: Queue, bound: int | None, dry: bool) -> Awaitable[int]:
        return door.replay_dlq(bound, dry_run=dry, rate=rate, progress=tell, **which)

    # Nobody has to be asked, and nobody sees a bar: then only "all" needs to be counted before.
    if dry_run or everything or not yes or sys.stderr.isatty():
        count = dead.count(queue, redis_url, work, most, quiet=not dry_run)
        most = count if everything else most
        if dry_run or not count:
            about.say(screen, "replayed", Worked(count if dry_run else 0), most, work, dry_run)
            _hint(queue, redis_url, which, count)
            return
        confirm(f"replay {_jobs(count)} into queue '{queue}'", yes, piped=True)
        bound = count
    else:
        bound = cast(int, most)
    done = dead.carry_out(queue, redis_url, "replaying", work, bound)
    about.say(screen, "replayed", done, most, work)
    _hint(queue, redis_url, which, done.done)
    _end(done, "the rest is still dead")


@dlq.command(
    epilog=examples(
        "chasqui dlq purge mail --older-than 30d              it asks first",
        "chasqui dlq purge mail --reason malformed --dry-run  how many would it be?",
        "chasqui dlq purge mail --everything --yes            all of it, unasked",
    )
)
def purge(
    queue: QueueName,
    everything: Annotated[
        bool, typer.Option("--everything", help="All of them, instead of a filter.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="How many at most, the oldest first.")
    ] = None,
    ids: Ids = None,
    name: Name = None,
    reason: Reason = None,
    error_type: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete dead jobs for good. Export them first if you may want them again."""
    which = read_which(ids, name, reason, error_type, older_than, newer_than)
    if dead.means_all(which) != everything:
        raise ConfigError(f"purge deletes: give a filter ({FILTERS}) or --everything; one of them")
    screen = Screen(as_json=as_json)

    def work(tell: Tell, door: Queue, bound: int | None, dry: bool) -> Awaitable[int]:
        return door.purge_dlq(bound, everything=everything, dry_run=dry, progress=tell, **which)

    about = _About(queue, redis_url, which, limit)
    count = dead.count(queue, redis_url, work, limit, quiet=True)
    if dry_run or not count:
        about.say(screen, "purged", Worked(count if dry_run else 0), count, work, dry_run)
        _hint(queue, redis_url, which, count)
        return
    confirm(f"delete {_jobs(count)} of queue '{queue}' for good", yes)
    # No more than was asked about: what died since then is another question.
    done = dead.carry_out(queue, redis_url, "deleting", work, count)
    about.say(screen, "purged", done, count, work)
    _end(done, "the rest is still there")


@dlq.command(
    epilog=examples(
        "chasqui dlq export mail dead.jsonl              a line per dead job",
        "chasqui dlq export mail --reason unrecoverable | jq .data",
        "chasqui dlq export mail dead.msgpack --force    replace an older file",
    )
)
def export(
    queue: QueueName,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|-]", help="Where to; - or a pipe: stdout.", show_default=False
        ),
    ] = None,
    format: Format = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    ids: Ids = None,
    name: Name = None,
    reason: Reason = None,
    error_type: ErrorType = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write dead jobs to a file that `chasqui dlq import` reads. They stay where they are."""
    which = read_which(ids, name, reason, error_type, older_than, newer_than)
    with into_file(file, format, force=force) as (target, form, is_stdout):

        async def verb(door: Queue) -> Worked:
            total = (await door.counts()).dead if dead.means_all(which) else None
            return await watched(
                "exporting",
                total,
                "jobs",
                lambda tell: door.export_dlq(target, format=form, progress=tell, **which),
            )

        done = run_on(queue, redis_url, verb)
    if done.stopped:
        left = f"after {_entries(done.done)}" if is_stdout else "no file was written"
        print(f"chasqui: stopped, {left}", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED)
    if is_stdout:
        print(f"exported {_entries(done.done)}", file=sys.stderr)
    elif as_json:
        Screen(as_json=True).json({"queue": queue, "exported": done.done, "file": file})
    else:
        Screen().say(f"exported {_entries(done.done)} to {file}")
    _hint(queue, redis_url, which, done.done)


@dlq.command(
    "import",
    epilog=examples(
        "chasqui dlq import mail dead.jsonl              back into the DLQ, each once",
        "chasqui dlq import mail dead.jsonl --dry-run    how many are missing there?",
        "zcat dead.jsonl.gz | chasqui dlq import mail -",
    ),
)
def bring_in(
    queue: QueueName,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What to read; -: stdin.")],
    format: Format = None,
    dry_run: DryRun = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Put exported rows back into the DLQ, each once. Replay them from there."""
    with from_file(file, format) as (source, form, _):

        async def verb(door: Queue) -> Worked:
            return await watched(
                "importing",
                None,
                "jobs",
                lambda tell: door.import_dlq(source, format=form, dry_run=dry_run, progress=tell),
            )

        done = run_on(queue, redis_url, verb)
    _say(Screen(as_json=as_json), queue, "imported", done, dry_run)
    _end(done, "to go on, import it again: nothing is added twice")


# -- inside ----------------------------------------------------------------------------------------


def _count_by(screen: Screen, queue: str, url: str | None, which: Which, by: render.By) -> None:
    async def verb(door: Queue) -> tuple[render.Tally, Worked, int, int]:
        there = (await door.counts()).dead
        counted, done = await dead.tally(door, which, by, there if dead.means_all(which) else None)
        return counted, done, there, await server_ms(url, queue)

    counted, done, there, now_ms = run_on(queue, url, verb)
    kinds = counted.kinds()
    if screen.as_json:
        told = [msgspec.structs.asdict(kind) for kind in kinds]
        screen.json(
            {"queue": queue, "dead": there, "counted": counted.seen, "by": by, "kinds": told}
        )
    else:
        screen.show(render.kinds(kinds, by, now_ms, counted.seen, there))
    _hint(queue, url, which, counted.seen)
    _end(done, "not all were counted")


class _About:
    """Which dead jobs a command is about, and what it says of them at its end."""

    def __init__(self, queue: str, url: str | None, which: Which, limit: int | None) -> None:
        self._queue = queue
        self._url = url
        self._limit = limit
        # How many a filter means is only known when the whole DLQ was read.
        self._all = self._dead() if dead.means_all(which) else None

    def say(
        self,
        screen: Screen,
        verb: str,
        done: Worked,
        most: int | None,
        work: dead.Work,
        dry_run: bool = False,
    ) -> None:
        """How many it was of how many; where the limit was reached, that there are others."""
        if screen.as_json:
            told = {"queue": self._queue, verb: done.done, "limit": most, "dry_run": dry_run}
            screen.json(told | {"dead": self._dead()})
            return
        there = _jobs(done.done) if self._all is None else f"{done.done:,} of {_jobs(self._all)}"
        limit = ""
        if self._has_others(done.done, work, dry_run):
            limit = f" (limit {self._limit:,}); run it again, or give another --limit"
        screen.say(f"{_verb(verb, done, dry_run)}{there}{limit}")

    def _has_others(self, done: int, work: dead.Work, dry_run: bool) -> bool:
        if self._limit is None or done < self._limit:
            return False
        others = done + 1 if dry_run else 1
        return dead.count(self._queue, self._url, work, others, quiet=True) == others

    def _dead(self) -> int:
        async def look(door: Queue) -> int:
            return (await door.counts()).dead

        return run_on(self._queue, self._url, look)


def _say(screen: Screen, queue: str, verb: str, done: Worked, dry_run: bool) -> None:
    if screen.as_json:
        screen.json({"queue": queue, verb: done.done, "limit": None, "dry_run": dry_run})
    else:
        screen.say(f"{_verb(verb, done, dry_run)}{_entries(done.done)}")


def _verb(verb: str, done: Worked, dry_run: bool) -> str:
    return f"{f'would have {verb}' if dry_run else verb} {'at least ' if done.cut else ''}"


def _hint(queue: str, url: str | None, which: Which, found: int) -> None:
    if not found:
        dead.hint(queue, url, which)


def _end(done: Worked, rest: str) -> None:
    if done.stopped:
        print(f"chasqui: stopped; {rest}", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED)


def _jobs(count: int) -> str:
    return f"{count:,} dead job{'' if count == 1 else 's'}"


def _entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"
