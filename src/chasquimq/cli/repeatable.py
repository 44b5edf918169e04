"""`chasqui repeatable`: the specs from which jobs are made again and again."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, TypeVar

import typer

from chasquimq.cli import render_repeatable as render
from chasquimq.cli.ask import refuse
from chasquimq.cli.clock import server_ms
from chasquimq.cli.exits import Exit
from chasquimq.cli.inspect import note_unknown
from chasquimq.cli.moment import duration_ms, moment_ms, read_duration, read_time
from chasquimq.cli.near import near
from chasquimq.cli.screen import Screen
from chasquimq.cli.shell import AsJson, QueueName, RedisUrl, examples, run, run_on
from chasquimq.errors import ConfigError
from chasquimq.job import BackoffSpec
from chasquimq.queue import Queue
from chasquimq.repeat import MissedFiresPolicy, RepeatableMeta, RepeatPattern
from chasquimq.text import shown

T = TypeVar("T")

PAGE = 500
NOT_FOUND = "not found"
NEXT_SHOWN = 3  # fires that are shown of a spec that was written

repeatable = typer.Typer(
    name="repeatable",
    help="Jobs that are made again and again: list, add, pause and remove their specs.",
    epilog=examples(
        "chasqui repeatable list mail",
        "chasqui repeatable add mail digest --cron '0 9 * * MON-FRI' --tz Europe/Berlin",
        "chasqui repeatable next mail --cron '0 0 29 2 *'    when would it fire?",
        "chasqui repeatable pause mail digest",
    ),
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="Of the spec; `list` shows it.")]
CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="EXPR", help="When, by the calendar: '0 9 * * MON'.")
]
ZoneOption = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="On whose clock: Europe/Berlin, +05:30; else UTC."),
]
EveryOption = Annotated[
    str | None, typer.Option("--every", metavar="TIME", help="Each 30s, 5m, 1h30m.")
]


@repeatable.command(
    "list",
    epilog=examples(
        "chasqui repeatable list mail",
        "chasqui repeatable list mail --json | jq '.[] | select(.state != \"firing\")'",
    ),
)
def list_specs(
    queue: QueueName,
    limit: Annotated[int, typer.Option(min=1, help="How many, the next to fire first.")] = 100,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the specs by their next fire; those that do not fire come last."""
    screen = Screen(as_json=as_json)

    async def look(door: Queue) -> tuple[int, list[RepeatableMeta]]:
        found = await door.get_repeatable_jobs(limit + 1)
        return await server_ms(redis_url, queue), found

    now_ms, found = run_on(queue, redis_url, look)
    listed = found[:limit]
    if as_json:
        screen.json([render.spec_json(one, now_ms) for one in listed])
        return
    screen.show(render.specs(listed, now_ms, more=len(found) > limit, width=screen.width))
    if not found:
        note_unknown(queue, redis_url)


@repeatable.command(
    epilog=examples(
        "chasqui repeatable add mail digest --cron '0 9 * * MON-FRI' --tz Europe/Berlin",
        "chasqui repeatable add mail poll --every 30s --data '{\"feed\": 7}' --key poll:7",
        "chasqui repeatable add bills close --cron '0 0 1 * *' --missed fire_all:12",
        "chasqui repeatable add mail nudge --every 1h --limit 3 --start-after 2h",
    )
)
def add(
    queue: QueueName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the jobs it makes.")],
    cron: CronOption = None,
    tz: ZoneOption = None,
    every: EveryOption = None,
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="The jobs' data; default: null.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="It fires so many times.")] = None,
    start_after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not before then: 2h from now, or a moment.")
    ] = None,
    end_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Not after then: 30d from now, or a moment.")
    ] = None,
    missed: Annotated[
        str | None,
        typer.Option(
            metavar="skip|fire_once|fire_all:N",
            help="What becomes of fires that nobody was there for; default: skip.",
        ),
    ] = None,
    attempts: Annotated[
        int | None, typer.Option(min=1, help="How often each job may run at the most.")
    ] = None,
    backoff: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|exponential:TIME[:TIME]",
            help="How long a failed job waits: 5s each time, or 1s and twice as long each time, "
            "up to 1m.",
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Its name; default: the job's name and the pattern.")
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a spec, and show when it fires next. One that is there goes on in its cadence."""
    pattern = _pattern(cron, tz, every)
    value = _json("--data", data)
    policy, rule = _missed(missed), _backoff(backoff)
    begins, ends = _times(
        ("--start-after", start_after), ("--end-before", end_before), url=redis_url, queue=queue
    )
    screen = Screen(as_json=as_json)

    async def write(door: Queue) -> tuple[str, int, list[datetime], RepeatableMeta | None]:
        spec = await door.upsert_repeatable_job(
            name,
            value,
            repeat=pattern,
            limit=limit,
            start_after=begins,
            end_before=ends,
            attempts=attempts,
            backoff=rule,
            missed_fires=policy,
            key=key,
        )
        fires = await door.next_fires(spec.id, NEXT_SHOWN)
        return spec.id, await server_ms(redis_url, queue), fires, await _find(door, spec.id)

    own_key, now_ms, fires, spec = run_on(queue, redis_url, write)
    paused = spec is not None and spec.paused
    if as_json:
        told = {"key": own_key, "paused": paused, "next_fires": render.fires_json(fires)}
        screen.json(told)
        return
    screen.say(shown(own_key))
    screen.show(render.fires(fires, now_ms, width=screen.width))
    if paused:
        print(f"it is paused: chasqui repeatable resume {shown(queue)} KEY", file=sys.stderr)


@repeatable.command(epilog=examples("chasqui repeatable remove mail digest::every:30000"))
def remove(queue: QueueName, key: Key, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Remove a spec: it fires no more. Jobs it has made stay."""
    _change(queue, redis_url, key, as_json, lambda door: _removed(door, key))


@repeatable.command(epilog=examples("chasqui repeatable pause mail digest"))
def pause(queue: QueueName, key: Key, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Let a spec fire no more until it is resumed; it stays so over restarts and deployments."""
    _change(queue, redis_url, key, as_json, lambda door: _paused(door, key))


@repeatable.command(epilog=examples("chasqui repeatable resume mail digest"))
def resume(queue: QueueName, key: Key, redis_url: RedisUrl = None, as_json: AsJson = False) -> None:
    """Let a spec go on in its cadence, without what passed meanwhile."""
    _change(queue, redis_url, key, as_json, lambda door: _resumed(door, key))


@repeatable.command(
    "run", epilog=examples("chasqui repeatable run mail digest    prints the job's id")
)
def run_now(
    queue: QueueName, key: Key, redis_url: RedisUrl = None, as_json: AsJson = False
) -> None:
    """Make one job of a spec at once, beside its cadence; prints the job's id."""
    screen = Screen(as_json=as_json)
    job = run_on(queue, redis_url, lambda door: _known(door, key, door.run_repeatable_now(key)))
    screen.json({"key": key, "job_id": job.id}) if as_json else screen.say(shown(job.id))


@repeatable.command(
    "next",
    epilog=examples(
        "chasqui repeatable next mail digest -n 3",
        "chasqui repeatable next mail --cron '30 2 * * *' --tz Europe/Berlin --after 7d",
    ),
)
def next_fires(
    queue: QueueName,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="Of a spec; or give a pattern.")
    ] = None,
    cron: CronOption = None,
    tz: ZoneOption = None,
    every: EveryOption = None,
    count: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many.")] = 10,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="From then on: 2h from now, or a moment.")
    ] = None,
    redis_url: RedisUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show when a spec fires next, or a pattern would, in its zone and in UTC. Writes nothing."""
    if (key is None) == (cron is None and every is None):
        raise ConfigError("give the KEY of a spec, or a pattern: --cron or --every")
    what: str | RepeatPattern = _pattern(cron, tz, every) if key is None else key
    [begins] = _times(("--after", after), url=redis_url, queue=queue)
    screen = Screen(as_json=as_json)

    async def look(door: Queue) -> tuple[int, list[datetime]]:
        asked = door.next_fires(what, count, after=begins)
        found = await (asked if key is None else _known(door, key, asked))
        return await server_ms(redis_url, queue), found

    now_ms, found = run_on(queue, redis_url, look)
    if as_json:
        screen.json(render.fires_json(found))
    else:
        screen.show(render.fires(found, now_ms, width=screen.width))


# -- inside ----------------------------------------------------------------------------------------


def _change(
    queue: str, url: str | None, key: str, as_json: bool, verb: Callable[[Queue], Awaitable[str]]
) -> None:
    """Print what became of a spec."""
    screen = Screen(as_json=as_json)
    became = run_on(queue, url, verb)
    screen.json({"key": key, "outcome": became}) if as_json else screen.say(became)
    if became == NOT_FOUND:
        raise typer.Exit(Exit.FAILED)


async def _removed(door: Queue, key: str) -> str:
    if await door.remove_repeatable_by_key(key):
        return "removed"
    print(await _missing(door, key), file=sys.stderr)
    return NOT_FOUND


async def _paused(door: Queue, key: str) -> str:
    if await door.pause_repeatable(key):
        return "paused"
    spec = await _find(door, key)
    if spec is None:
        print(await _missing(door, key), file=sys.stderr)
        return NOT_FOUND
    return "paused already" if spec.problem is None else f"put aside: {shown(spec.problem)}"


async def _resumed(door: Queue, key: str) -> str:
    if await door.resume_repeatable(key):
        return "resumed"
    if await _find(door, key) is not None:
        return "firing already"
    print(await _missing(door, key), file=sys.stderr)
    return NOT_FOUND


async def _known(door: Queue, key: str, asked: Awaitable[T]) -> T:
    """What was asked about a spec; the nearest key where there is none with this one."""
    try:
        return await asked
    except ConfigError:
        if await _find(door, key) is None:
            refuse(await _missing(door, key))
        raise


async def _missing(door: Queue, key: str) -> str:
    keys = [one.key async for one in _all(door)]
    return f"no spec of this queue has the key '{shown(key, 200)}'; {near(key, keys)}"


async def _find(door: Queue, key: str) -> RepeatableMeta | None:
    async for one in _all(door):
        if one.key == key:
            return one
    return None


async def _all(door: Queue) -> AsyncIterator[RepeatableMeta]:
    after: RepeatableMeta | None = None
    while page := await door.get_repeatable_jobs(PAGE, after=after):
        for one in page:
            yield one
        after = page[-1]


def _pattern(cron: str | None, tz: str | None, every: str | None) -> RepeatPattern:
    if (cron is None) == (every is None):
        raise ConfigError("say when: --cron EXPR or --every TIME, one of the two")
    if every is not None:
        if tz is not None:
            raise ConfigError("--tz goes with --cron: an interval knows no clock on the wall")
        return RepeatPattern.every(duration_ms(read_duration(every, "--every")))
    return RepeatPattern.cron(cron or "", tz=tz)


def _json(option: str, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{option} is no JSON: {error}; a text needs quotes: '\"text\"'"
        ) from None


def _missed(text: str | None) -> MissedFiresPolicy | None:
    if text is None:
        return None
    kind, _, many = text.replace("-", "_").partition(":")
    if kind == "fire_all":
        if not many.isdecimal():
            raise ConfigError("--missed fire_all needs a number: fire_all:100 catches up with 100")
        return MissedFiresPolicy.fire_all(int(many))
    if many or kind not in ("skip", "fire_once"):
        words = near(kind, ("skip", "fire_once", "fire_all:N"))
        raise ConfigError(f"--missed: nobody knows '{shown(text, 80)}'; {words}")
    return MissedFiresPolicy.skip() if kind == "skip" else MissedFiresPolicy.fire_once()


def _backoff(text: str | None) -> BackoffSpec | None:
    if text is None:
        return None
    kind, *times = text.split(":")
    if kind not in ("fixed", "exponential"):
        kind, times = "fixed", [text]
    if not times or len(times) > (1 if kind == "fixed" else 2):
        raise ConfigError(
            f"--backoff: '{shown(text, 80)}' is no backoff; write 5s, or exponential:1s, or "
            "exponential:1s:1m"
        )
    first, *last = (duration_ms(read_duration(one, "--backoff")) for one in times)
    if kind == "fixed":
        return BackoffSpec.fixed(first)
    return BackoffSpec.exponential(first, max_ms=last[0] if last else None)


def _times(*given: tuple[str, str | None], url: str | None, queue: str) -> list[int | None]:
    """Moments as epoch ms; a duration counts from now on, by the server's clock."""
    times = [None if text is None else read_time(text, option) for option, text in given]
    relative = any(isinstance(time, timedelta) for time in times)
    now_ms = run(server_ms(url, queue)) if relative else 0
    return [None if time is None else moment_ms(time, now_ms) for time in times]
