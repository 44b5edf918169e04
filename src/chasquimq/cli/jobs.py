"""`chasqui jobs`: find a job wherever it is, list jobs, cancel them, give them another time."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from chasquimq import wire
from chasquimq.cli import render_jobs as render
from chasquimq.cli.ask import refuse
from chasquimq.cli.bar import Bar
from chasquimq.cli.exits import Exit
from chasquimq.cli.inspect import note_unknown
from chasquimq.cli.moment import read_duration, read_moment
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, Group, QueueName, RedisUrl, examples, run_in, run_on
from chasquimq.errors import ConfigError
from chasquimq.queue import Queue
from chasquimq.store import Store
from chasquimq.store.find import Find, Looked, Sought
from chasquimq.store.listing import Listed, Listing
from chasquimq.store.sighting import Sighting, State
from chasquimq.text import shown

SHOWN = 2_000  # characters of a job's data
FETCHED = 1_048_576  # bytes of a result, unless all of it is wanted
LARGE = 20_000  # rows to look through
STATES: tuple[State, ...] = ("running", "waiting", "delayed", "dead")

jobs = typer.Typer(
    name="jobs",
    help="Find a job, list jobs, cancel or reschedule delayed ones.",
    no_args_is_help=True,
)

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job, or of its entry.")]
Scan = Annotated[
    int, typer.Option(min=1, help="Look at so many rows of stream, delayed set, DLQ and events.")
]


@jobs.command(
    epilog=examples(
        "chasqui jobs show mail order:42                 where it is, since when",
        "chasqui jobs show mail 1794819600000-0          by its entry in the stream",
        "chasqui jobs show mail order-17 --full --json | jq .places[0].data",
    )
)
def show(
    queue: QueueName,
    job_id: JobId,
    full: Annotated[bool, typer.Option("--full", help="Show all of its data.")] = False,
    scan: Scan = 100_000,
    events: Annotated[int, typer.Option(min=0, help="So many of its newest events.")] = 20,
    group: Group = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a job by its id, wherever it is: waiting, running, delayed, dead, done with a result.

    It can be in several places: all are shown. Looking changes nothing. Exit code 1: it was not
    found, and the message says where was looked.
    """
    screen = Screen(as_json=as_json)
    if any("\ud800" <= one <= "\udfff" for one in job_id):  # no job can have it, no server be asked
        raise ConfigError(f"job id {shown(job_id, 80)!r} is no valid text")

    async def look(store: Store) -> Sought:
        title = f"looking for {shown(job_id, 40)}"
        with Bar(title, None, "rows", large=LARGE) as bar:
            find = Find(store.keys, store.link, group, scan=scan, progress=bar.forward)
            bar.expect(await find.sizes())
            most = 2**62 if full or as_json else FETCHED
            return await find.job(job_id, events=events, result_bytes=most)

    found = run_in(queue, redis_url, look)
    if as_json:
        screen.json(render.sought_json(found))
    if not found.found:
        refuse(f"queue {queue!r} {render.not_found(shown(job_id, 200), found.looked)}")
    if not as_json:
        screen.show(*render.sought(found, 0 if full else SHOWN))


@jobs.command(
    "list",
    epilog=examples(
        "chasqui jobs list mail                             some of each state",
        "chasqui jobs list mail --state running             what the workers do now",
        "chasqui jobs list mail --state delayed --name welcome --limit 100",
    ),
)
def list_jobs(
    queue: QueueName,
    state: Annotated[
        Literal["waiting", "running", "delayed", "dead"] | None,
        typer.Option(help="Only these; default: all, so many of each."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, those that come next first.")] = 20,
    name: Annotated[str | None, typer.Option(help="Only jobs with this name.")] = None,
    scan: Annotated[int, typer.Option(min=1, help="Look at so many to find a name.")] = 100_000,
    group: Group = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List jobs: id, name, age, runs, and who has them, when they are due or why they died."""
    screen = Screen(as_json=as_json)
    states = STATES if state is None else (state,)

    async def look(store: Store) -> tuple[int, list[tuple[str, Listed]]]:
        with Bar("looking", None, "rows") as bar:
            listing = Listing(store.keys, store.link, group, scan=scan, progress=bar.forward)
            pages = [(one, await listing.some(one, limit, name)) for one in states]
        return await store.link.clock_ms(), [(str(one), page) for one, page in pages]

    now_ms, pages = run_in(queue, redis_url, look)
    if as_json:
        screen.json([render.job_json(one) for _, page in pages for one in page.jobs])
        return
    screen.show(render.jobs(pages, now_ms))
    if not any(page.jobs for _, page in pages):
        note_unknown(queue, redis_url)


@jobs.command(
    epilog=examples(
        "chasqui jobs cancel mail order-17",
        "chasqui jobs cancel mail order-17 order-18 --json",
    )
)
def cancel(
    queue: QueueName,
    job_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of delayed jobs.")],
    group: Group = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take delayed jobs back before they are due, and say for each what became of it.

    Exit code 1: one of them was not cancelled, because it runs, waits, is dead or is unknown.
    """
    screen = Screen(as_json=as_json)
    for job_id in job_ids:
        wire.check_job_id(job_id)

    async def do(door: Queue) -> list[bool]:
        return [await door.cancel_delayed(job_id) for job_id in job_ids]

    done = run_on(queue, redis_url, do)
    left = [job_id for job_id, gone in zip(job_ids, done, strict=True) if not gone]
    reasons = _reasons(queue, redis_url, group, left)
    for job_id in dict.fromkeys(job_ids):
        why = reasons.get(job_id)
        if as_json:
            told = {"job_id": job_id, "cancelled": why is None}
            screen.line(told if why is None else told | {"why": why})
        else:
            screen.say(
                f"{shown(job_id)}: {'cancelled' if why is None else f'not cancelled: {why}'}"
            )
    if reasons:
        raise typer.Exit(Exit.FAILED)


@jobs.command(
    epilog=examples(
        "chasqui jobs reschedule mail order-17 --in 5m",
        "chasqui jobs reschedule mail order-17 --at '2026-11-16 09:00 Europe/Berlin'",
        "chasqui jobs reschedule mail order-17 --now",
    )
)
def reschedule(
    queue: QueueName,
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of a delayed job.")],
    after: Annotated[
        str | None, typer.Option("--in", metavar="DURATION", help="So long from now: 5m, 1h30m.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Then; without a zone it is UTC.")
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Run it now.")] = False,
    group: Group = "default",
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Let a delayed job run at another time. Exit code 1: it is too late, or it is unknown."""
    screen = Screen(as_json=as_json)
    if (after is not None) + (at is not None) + now != 1:
        raise ConfigError("say when the job is to run: --in DURATION, --at TIME or --now")
    wire.check_job_id(job_id)
    delay = None if after is None else read_duration(after, "--in")
    moment = None if at is None else read_moment(at, "--at")

    async def do(door: Queue) -> bool:
        if now:
            return await door.run_now(job_id)
        return await door.reschedule(job_id, delay=delay if delay is not None else moment)

    done = run_on(queue, redis_url, do)
    if not done:
        why = _reasons(queue, redis_url, group, [job_id])[job_id]
        if as_json:
            screen.line({"job_id": job_id, "rescheduled": False, "why": why})
        refuse(f"job {shown(job_id, 200)!r} was not rescheduled: {why}")

    async def due(store: Store) -> tuple[int, int | None]:
        due_ms = await Find(store.keys, store.link, group).due_ms(job_id)
        return await store.link.clock_ms(), due_ms

    now_ms, due_ms = run_in(queue, redis_url, due)
    if as_json:
        screen.line({"job_id": job_id, "rescheduled": True, "due_ms": due_ms})
        return
    runs = f"is due {render.when(due_ms, now_ms)}" if due_ms is not None else "runs now"
    screen.say(f"{shown(job_id)}: {runs}")


def _reasons(queue: str, url: str | None, group: str, job_ids: list[str]) -> dict[str, str]:
    """Why each of these jobs could not be changed."""
    if not job_ids:
        return {}

    async def look(store: Store) -> dict[str, str]:
        with Bar("looking where they are", None, "rows") as bar:
            find = Find(store.keys, store.link, group, progress=bar.forward)
            found: dict[str, tuple[list[Sighting], list[Looked]]] = {
                job_id: await find.places(job_id) for job_id in job_ids
            }
        return {job_id: render.why_not(*places) for job_id, places in found.items()}

    return run_in(queue, url, look)
