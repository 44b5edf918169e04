"""`chasqui add`: jobs from the command line, a file or a pipe."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Annotated, Any, Literal

import typer

from chasquimq import sync
from chasquimq.cli import render_add as render
from chasquimq.cli.aside import Aside, logged_to
from chasquimq.cli.ask import refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.exits import Exit
from chasquimq.cli.load import Loader, Send, Tally
from chasquimq.cli.moment import duration_ms, read_duration, read_moment
from chasquimq.cli.output import drop_stdout
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import (
    AsJson,
    DryRun,
    QueueName,
    RedisUrl,
    examples,
    run_in,
    the_dialect,
    the_url,
)
from chasquimq.cli.source import SUFFIXES, Bad, Format, Source, parse
from chasquimq.errors import ChasquiError, ConfigError, StoreError, WireError
from chasquimq.job import BackoffSpec, Job
from chasquimq.queue import Queue, check_job
from chasquimq.store import Store
from chasquimq.text import shown

LARGE = 262_144  # bytes to add from
GIVE_UP_AFTER = 30  # tries to reconnect, with pauses up to a second

EXAMPLES = examples(
    "chasqui add mail welcome '{\"user\": 42}'               one job; prints its id",
    "chasqui add mail welcome null --delay 5m               ... in five minutes",
    "chasqui add mail welcome --file users.jsonl            a job for each line",
    "psql -c '...' | chasqui add mail welcome               the same from a pipe",
    "chasqui add mail --as-jobs --file jobs.jsonl           lines are whole jobs",
    "chasqui add mail welcome --file users.jsonl --dry-run  only check all of them",
)


def add(
    queue: QueueName,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Name of the job; with --as-jobs the default."),
    ] = None,
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="Its data, as JSON; null for none.")
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="PATH", help="Read them from a file; - is stdin.")
    ] = None,
    format: Annotated[
        Literal["json", "jsonl", "msgpack"] | None,
        typer.Option(help="One document, one on each line, or values; default: by the name."),
    ] = None,
    as_jobs: Annotated[
        bool,
        typer.Option(
            "--as-jobs",
            help="Each record is a job: a mapping with name, data, delay_ms, attempts, job_id ...",
        ),
    ] = False,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Run it so much later: 5m, 1h30m.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run it then; without a zone it is UTC.")
    ] = None,
    job_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Its id: added again, it comes in once.")
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=0, help="At most so many runs; default: as the worker says.")
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Between runs: 5s, exponential:1s, exponential:1s:10m (at most), or JSON.",
        ),
    ] = None,
    unique_for: Annotated[
        str | None, typer.Option(metavar="DURATION", help="No second job with this id meanwhile.")
    ] = None,
    until_done: Annotated[
        bool, typer.Option("--until-done", help="No second job with this id until it is done.")
    ] = False,
    durability: Annotated[
        Literal["memory", "local", "replicated"] | None,
        typer.Option(help="What must have a job before it counts as added."),
    ] = None,
    max_stream_len: Annotated[
        int | None, typer.Option(min=1, help="Refuse jobs beyond so many; default: 1000000.")
    ] = None,
    on_full: Annotated[
        Literal["raise", "wait"], typer.Option(help="Where the queue is full: stop, or wait.")
    ] = "raise",
    from_line: Annotated[
        int, typer.Option(metavar="N", min=1, help="Begin with this line: to go on after a stop.")
    ] = 1,
    skip_bad: Annotated[
        bool,
        typer.Option("--skip-bad", help="Leave out what cannot be added, count it, and exit 1."),
    ] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Print the id of each job.")] = False,
    dry_run: DryRun = False,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Add a job, or one for each record of a file or a pipe.

    What ends early says how many jobs are in, and how to go on. Exit code 1: not all could be
    added.
    """
    given = {
        "delay": _delay(delay, at),
        "attempts": attempts,
        "backoff": _backoff(backoff),
        "job_id": job_id,
        "unique": "until_done" if until_done else None,
        "unique_for": None
        if unique_for is None
        else duration_ms(read_duration(unique_for, "--unique-for")),
    }
    options = {option: value for option, value in given.items() if value is not None}
    make = JobOf(name, options, as_jobs)
    if name is None and not as_jobs:
        raise ConfigError("NAME is missing: what is the job called? Only --as-jobs goes without")
    door: dict[str, Any] = {
        "redis_url": the_url(redis_url),
        "dialect": the_dialect(),
        "max_stream_len": max_stream_len,
        "durability": durability,
        "reconnect_max_attempts": GIVE_UP_AFTER,
    }
    check = Check(Queue(queue, **door))
    check.options(make.sample())
    read_as = _format(format, file, data, job_id, as_jobs)
    with _source(data, file, read_as, from_line, as_jobs) as source:
        printer = Printer(Screen(as_json=as_json), ids=ids and not dry_run, dry_run=dry_run)
        loader = Loader(source, make, check, skip_bad=skip_bad, tell=printer.jobs)
        with _sending(queue, redis_url, door, dry_run) as loader.send:
            if max_stream_len is not None:
                loader.bulk = min(loader.bulk, max_stream_len)
            loader.waits = on_full == "wait"
            ended = _run(loader, source)
        if ended is None and data is None and file is None and source.blank:
            refuse("stdin is empty, so nothing was added; give DATA (null for none) or --file")
        if ended is None and 1 < source.number <= from_line:
            refuse(f"{source.name} ends before {source.unit} {from_line:,}; nothing was added")
        printer.end(queue, source, loader.tally, ended)


def _run(loader: Loader, source: Source) -> BaseException | None:
    """Add everything; answers what ended it early."""
    with logged_to(Aside()), Bar("adding", source.size, "jobs", large=LARGE) as bar:
        try:
            loader.run(bar)
        except (ChasquiError, KeyboardInterrupt) as error:
            return error
    return None


@contextmanager
def _sending(
    queue: str, url: str | None, door: Mapping[str, Any], dry_run: bool
) -> Iterator[Send | None]:
    if dry_run:
        yield None
        return
    run_in(queue, url, _nothing)  # who cannot connect reads nothing, and leaves nothing in doubt
    with sync.Queue(queue, **door) as opened:
        yield opened.add_bulk


async def _nothing(store: Store) -> None:
    pass


class Printer:
    """What is told of the jobs: ids while they come in, the sums at the end."""

    def __init__(self, screen: Screen, *, ids: bool, dry_run: bool) -> None:
        self._screen = screen
        self._ids = ids
        self._dry_run = dry_run
        self._begun = False
        self._lost: str | None = None  # why stdout could not be written

    def _write(self, text: str) -> None:
        """A reader that has gone, or a full disk, does not stop the jobs."""
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            drop_stdout()
        except OSError as error:
            drop_stdout()
            self._lost = error.strerror or str(error)

    def jobs(self, jobs: Sequence[Job]) -> None:
        """They are not kept: there may be as many as in a file of any size."""
        if not self._ids or not jobs:
            return
        if self._screen.as_json:
            told = ",".join(json.dumps(job.id) for job in jobs)
            self._write(f"{',' if self._begun else OPEN_IDS}{told}")
        else:
            self._write("".join(f"{shown(job.id)}\n" for job in jobs))
        self._begun = True

    def end(self, queue: str, source: Source, tally: Tally, ended: BaseException | None) -> None:
        """The sums; raises what ended the work early, with all that is to be said of it."""
        self._sums(tally, ended)
        for line in render.skipped(tally, source.unit):
            print(f"chasqui: {line}", file=sys.stderr)
        if self._lost is not None:
            added = render.added(tally, self._dry_run)
            print(f"chasqui: cannot write to stdout: {self._lost}; {added}", file=sys.stderr)
        if ended is None:
            if tally.bad_count or self._lost is not None:
                raise typer.Exit(Exit.FAILED)
            return
        notes = render.account(tally, queue, source.unit, many=source.is_many)
        if isinstance(ended, ChasquiError):
            ended = _first(ended)
            ended.__notes__ = notes  # not those of a bulk, which count otherwise
        else:
            print("chasqui: stopped", file=sys.stderr)
            for note in notes:
                print(f"         {note}", file=sys.stderr)
        raise ended

    def _sums(self, tally: Tally, ended: BaseException | None) -> None:
        if self._screen.as_json:
            sums = json.dumps(render.sums(tally, self._dry_run))
            if self._ids:
                sums = f"{'' if self._begun else OPEN_IDS}], {sums[1:]}"
            self._write(f"{sums}\n")
        elif self._ids or (ended is not None and not tally.added):
            return
        elif tally.job_id is not None and tally.added + tally.duplicates == 1 and ended is None:
            self._write(f"{shown(tally.job_id)}\n")
            if tally.duplicates:
                print("chasqui: it was there already; nothing was added", file=sys.stderr)
        else:
            self._write(f"{render.added(tally, self._dry_run)}\n")


def _first(error: ChasquiError) -> ChasquiError:
    """What befell the first job of a bulk: the bulk's own error speaks to programs."""
    outcomes = error.outcomes if isinstance(error, StoreError) else ()
    return next((one for one in outcomes if isinstance(one, ChasquiError)), error)


OPEN_IDS = '{"ids": ['


class JobOf:
    """Makes a job, as add_bulk takes it, of a record's value."""

    def __init__(self, name: str | None, options: Mapping[str, Any], as_jobs: bool) -> None:
        self._name = name
        self._options = options
        self._as_jobs = as_jobs

    def __call__(self, value: Any) -> Mapping[str, Any]:
        if not self._as_jobs:
            return {"name": self._name, "data": value, **self._options}
        if type(value) is not dict or not all(type(key) is str for key in value):
            kind = type(value).__name__
            raise WireError(f"a job is a mapping with name and data, got a {kind}")
        job = {"name": self._name, **self._options, **value}
        if "delay_ms" in value and "delay" not in value:
            job.pop("delay", None)
        return job

    def sample(self) -> Mapping[str, Any]:
        """One to check the options with, before anything is read."""
        sample = {"name": self._name, "data": None, **self._options}
        if self._as_jobs and ("unique" in sample or "unique_for" in sample):
            sample["job_id"] = "the record's own"
        return sample


class Check:
    """Raises what add_bulk would for a job, without a connection."""

    def __init__(self, door: Queue) -> None:
        self._door = door

    def __call__(self, job: Mapping[str, Any]) -> None:
        check_job(self._door, job)

    def options(self, sample: Mapping[str, Any]) -> None:
        """The same for options that are the same for all jobs."""
        try:
            self(sample)
        except ChasquiError as error:
            error.__notes__ = []  # there is no bulk yet
            raise


# -- options -----------------------------------------------------------------------------------


def _delay(delay: str | None, at: str | None) -> Any:
    if delay is not None and at is not None:
        raise ConfigError("give --delay or --at, not both")
    if delay is not None:
        return read_duration(delay, "--delay")
    return None if at is None else read_moment(at, "--at")


def _backoff(text: str | None) -> Any:
    if text is None:
        return None
    if text.lstrip().startswith("{"):
        spec = parse(text.encode())
        if isinstance(spec, Bad):
            raise ConfigError(f"--backoff: {spec.why}")
        return spec
    kind, *times = text.split(":")
    if kind == "exponential" and len(times) in (1, 2):
        ms = [duration_ms(read_duration(one, "--backoff")) for one in times]
        return BackoffSpec.exponential(ms[0], max_ms=ms[1] if len(ms) == 2 else None)
    if times:
        raise ConfigError(
            f"--backoff: {shown(text, 80)!r} is none; write 5s, exponential:1s or "
            "exponential:1s:10m"
        )
    return BackoffSpec.fixed(duration_ms(read_duration(text, "--backoff")))


def _format(
    format: Format | None, file: str | None, data: str | None, job_id: str | None, as_jobs: bool
) -> Format | None:
    """What was asked for, or what the file's name says; None: what is in it will tell."""
    if data is not None:
        if format == "msgpack":
            raise ConfigError("DATA is JSON; MessagePack comes with --file")
        format = "json"
    elif format is None and file is not None:
        format = SUFFIXES.get(os.path.splitext(file)[1].lower())
    if job_id is None:
        return format
    if as_jobs or format in ("jsonl", "msgpack"):
        raise ConfigError(
            "--job-id is for one job; where there may be many, --as-jobs takes each one's job_id"
        )
    return "json"


@contextmanager
def _source(
    data: str | None, file: str | None, format: Format | None, first: int, lists: bool
) -> Iterator[Source]:
    if data is not None:
        if file is not None:
            raise ConfigError("give DATA or --file, not both")
        parsed = parse(data.encode(errors="surrogateescape"))
        if isinstance(parsed, Bad):
            why = parsed.why if parsed.why.startswith("it ") else f"it is {parsed.why}"
            why = why.removeprefix("it ")
            raise ConfigError(f"DATA {why}; text has quotes in JSON: '\"text\"'")
        yield Source(BytesIO(data.encode()), "DATA", format, lists=lists)
        return
    if file is None and (sys.stdin is None or sys.stdin.isatty()):
        raise ConfigError("DATA is missing: give it as JSON (null for none), --file, or a pipe")
    if file in (None, "-"):
        yield Source(sys.stdin.buffer, "stdin", format, first=first, lists=lists)
        return
    assert file is not None
    try:
        opened = open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(f"--file {shown(file, 200)}: {error.strerror}") from None
    with opened:
        yield Source(opened, shown(file, 200), format, first=first, lists=lists)
