"""What a queue's door does with specs: write, list, pause, take up, preview, remove.

1. a spec is read and checked whole before anything is connected to;
2. whoever changes one says how he saw it; if that is no longer true, he looks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from chasquimq import wire
from chasquimq.config import MAX_MS, ProducerOptions, ScheduleOptions, check_within
from chasquimq.errors import (
    ArgumentError,
    ConfigError,
    PayloadTooLargeError,
    StoreError,
    WireError,
)
from chasquimq.job import RetryOverride
from chasquimq.policy.moment import LAST_MS, epoch_ms
from chasquimq.policy.repeat import first_fire, plan, take_up, upcoming, zone
from chasquimq.repeat import (
    PAUSED_MS,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
    StoredSpec,
    listed_at,
    place_of,
)
from chasquimq.store import Store
from chasquimq.store.specs import Seen, Specs

Moment = int | datetime | None
Pattern = RepeatPattern | Mapping[str, Any]
Missed = MissedFiresPolicy | Mapping[str, Any] | None

MAX_KEY_BYTES = 990  # a fire's id is its spec's key and the moment, and an id has 1 KiB
MAX_PREVIEW = 10_000
TICK_MS = ScheduleOptions().tick_ms
TRIES = 100  # how often others may come between a look and a change
_ENVELOPE_BYTES = 160  # what a job adds to payload and key at the most


def read_spec(
    name: str | None,
    payload: bytes,
    options: ProducerOptions,
    *,
    repeat: Pattern,
    limit: int | None = None,
    start_after: Moment = None,
    end_before: Moment = None,
    retry: RetryOverride | None = None,
    missed_fires: Missed = None,
    key: str | None = None,
) -> StoredSpec:
    """A spec as it will be stored, or an error that says what is wrong with it."""
    pattern, name = RepeatPattern.read(repeat), "" if name is None else name
    wire.check_name(name)
    first_fire(pattern, 0)  # raises what is wrong with it
    own_key = wire.resolved_key(None if key is None else _text_key(key), name, pattern)
    size = len(own_key.encode())
    if size > MAX_KEY_BYTES:
        raise ConfigError(
            f"the key of a spec has at most {MAX_KEY_BYTES} bytes, got {size}: {own_key!r:.80}; "
            "upsert_repeatable_job takes a shorter one as key="
        )
    size += len(payload) + _ENVELOPE_BYTES
    if size > options.max_payload_bytes:
        raise PayloadTooLargeError(size, options.max_payload_bytes)
    return StoredSpec(
        key=own_key,
        job_name=name,
        pattern=pattern,
        payload=payload,
        limit=None if limit is None else check_within("limit", limit, 0, MAX_MS),
        start_after_ms=_moment("start_after", start_after),
        end_before_ms=_moment("end_before", end_before),
        missed_fires=MissedFiresPolicy.read(missed_fires),
        retry=retry,
    )


def one_moment(name: str, moment: Moment, moment_ms: Moment) -> Moment:
    """Two names for one option, as callers of the reference know it."""
    if moment is not None and moment_ms is not None:
        raise ConfigError(f"give {name} or {name}_ms, not both")
    return moment if moment is not None else moment_ms


class Timetable:
    def __init__(self, store: Callable[[], Awaitable[Store]]) -> None:
        self.wrote = False  # an upsert sent what changes a spec, whatever was answered
        self._store = store

    async def upsert(self, spec: StoredSpec) -> int:
        """Write it; answers when it fires next. One that is there with this pattern already goes
        on as it did, so every process may write it when it starts."""
        packed = wire.pack_spec(spec)
        retry = wire.pack_override(packed, spec.retry)
        specs = await self._specs()
        for _ in range(TRIES):
            now_ms, seen = await specs.see(spec.key)
            keep = _goes_on(seen, spec)
            next_ms = seen.stood if keep else first_fire(spec.pattern, now_ms, spec.start_after_ms)
            if next_ms is None:
                raise ConfigError(f"spec {spec.key!r:.200} would never fire: its years are over")
            if spec.end_before_ms is not None and next_ms > spec.end_before_ms:
                raise ConfigError(
                    f"end_before_ms ({spec.end_before_ms}) of spec {spec.key!r:.200} is before "
                    f"its first fire ({next_ms})"
                )
            # Whoever paused it takes it up again: no other write does.
            aside = seen.paused and not keep
            self.wrote = True
            if await specs.put(seen, packed, retry, None if keep else next_ms, aside=aside):
                return next_ms
        raise _busy(spec.key)

    async def page(self, limit: int, after: RepeatableMeta | None = None) -> list[RepeatableMeta]:
        most = check_within("limit", limit, 0, MAX_MS)
        if after is not None and not isinstance(after, RepeatableMeta):
            raise ArgumentError(
                f"after is the last RepeatableMeta of a page, got {type(after).__name__}"
            )
        behind = None if after is None else place_of(after)
        return [_meta(seen) for seen in await (await self._specs()).page(most, behind)]

    async def remove(self, key: str) -> bool:
        _text_key(key)
        return await (await self._specs()).drop(key)

    async def pause(self, key: str) -> bool:
        """False if there is no such spec, or it does not fire anyway."""
        return await self._change(key, _pause)

    async def resume(self, key: str) -> bool:
        """False if there is no such spec, or it was not put aside."""
        return await self._change(key, _resume)

    async def _change(self, key: str, change: Change) -> bool:
        _text_key(key)
        specs = await self._specs()
        for _ in range(TRIES):
            now_ms, seen = await specs.see(key)
            changing = change(specs, seen, now_ms) if seen.armed else None
            if changing is None:
                return False
            if await changing:
                return True
        raise _busy(key)

    async def next_fires(
        self, what: str | Pattern, count: int, after: Moment = None
    ) -> list[datetime]:
        """The next fires of a spec, or of a pattern, from now on or after a moment, on the clock
        of its zone.

        What is overdue now is shown as a scheduler would fire it.
        """
        most = min(check_within("n", count, 0, MAX_MS), MAX_PREVIEW)
        after_ms = _moment("after", after)
        fires: tuple[int, ...] = ()
        if isinstance(what, str):
            now_ms, seen = await self._see(what)
            spec = _read(seen)
            if spec.limit:
                most = min(most, max(spec.limit - seen.fired, 0))
            next_ms = seen.stood if seen.live else _taken_up(seen, spec, now_ms)
            if after_ms is not None:
                next_ms = _taken_up(seen, spec, after_ms)
            elif next_ms is not None:
                fires, next_ms, _ = plan(spec, next_ms, now_ms, TICK_MS, most)
        else:
            pattern = RepeatPattern.read(what)
            spec = StoredSpec(key="", job_name="", pattern=pattern, payload=b"")
            if after_ms is None:
                after_ms = await (await self._specs()).clock_ms()
            next_ms = first_fire(pattern, after_ms)
        if next_ms is not None:
            fires += tuple(upcoming(spec, next_ms, most - len(fires)))
        where = zone(spec.pattern)
        return [datetime.fromtimestamp(ms / 1000, where) for ms in fires[:most] if ms < LAST_MS]

    async def recipe(self, key: str) -> StoredSpec:
        """The spec under this key; ConfigError if there is none, or it cannot be read."""
        _, seen = await self._see(key)
        return _read(seen)

    async def _see(self, key: str) -> tuple[int, Seen]:
        _text_key(key)
        now_ms, seen = await (await self._specs()).see(key)
        if not seen.armed:
            raise ConfigError(f"there is no spec {key!r:.200}; get_repeatable_jobs() lists them")
        return now_ms, seen

    async def _specs(self) -> Specs:
        return (await self._store()).specs


# What is to be done with a spec as it was seen at that moment; None: nothing.
Change = Callable[[Specs, Seen, int], Awaitable[bool] | None]


def _pause(specs: Specs, seen: Seen, now_ms: int) -> Awaitable[bool] | None:
    return specs.put_aside(seen) if seen.live else None


def _resume(specs: Specs, seen: Seen, now_ms: int) -> Awaitable[bool] | None:
    if seen.live:
        return None
    spec = _read(seen)
    next_ms = _taken_up(seen, spec, now_ms)
    if next_ms is None:
        raise ConfigError(f"spec {spec.key!r:.200} has no fire left; remove it, or write it anew")
    return specs.move(seen, next_ms)


def _taken_up(seen: Seen, spec: StoredSpec, now_ms: int) -> int | None:
    """When it would fire next; from now on if nobody knows where it stood."""
    return take_up(spec, seen.stood if seen.stood < PAUSED_MS else now_ms, now_ms)


def _goes_on(seen: Seen, spec: StoredSpec) -> bool:
    """Whether what is there fires at the same moments, so that nothing is to be armed anew."""
    if not seen.armed or seen.problem is not None:
        return False
    try:
        old = seen.read()
    except WireError:
        return False
    same = _signature(old) == _signature(spec) and old.start_after_ms == spec.start_after_ms
    return same and seen.stood < PAUSED_MS


def _signature(spec: StoredSpec) -> str:
    return wire.resolved_key(None, "", spec.pattern)


def _read(seen: Seen) -> StoredSpec:
    try:
        spec = seen.read()
        zone(spec.pattern)
    except (WireError, ConfigError) as error:
        key = seen.key.decode(errors="replace")
        raise ConfigError(f"spec {key!r:.200} cannot be read: {error.args[0]}") from error
    return spec


def _meta(seen: Seen) -> RepeatableMeta:
    key, problem = seen.key.decode(errors="replace"), seen.problem
    try:
        spec = seen.read()
    except WireError as error:
        spec = StoredSpec(key=key, job_name="", pattern=RepeatPattern("unreadable"), payload=b"")
        problem = problem or str(error.args[0])
    skips, retry = spec.missed_fires.kind == "skip", spec.retry or RetryOverride()
    meta = RepeatableMeta(
        key,
        spec.job_name,
        spec.pattern,
        seen.stood,
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        None if skips else spec.missed_fires,
        seen.fired,
        seen.paused,
        problem,
        retry.max_attempts,
        retry.backoff,
    )
    return listed_at(meta, seen.place, seen.key)


def _text_key(key: str) -> str:
    if not isinstance(key, str):
        raise ArgumentError(f"the key of a spec is a str, got {type(key).__name__}")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"the key of a spec is no valid text: {key[:80]!r}") from error
    return key


def _moment(name: str, moment: Moment) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, bool) or not isinstance(moment, int | datetime):
        raise ArgumentError(f"{name} is epoch ms or a datetime, got {type(moment).__name__}")
    ms = epoch_ms(moment) if isinstance(moment, datetime) else moment
    if not 0 <= ms < MAX_MS:
        raise ConfigError(f"{name} must be a moment since 1970, got {moment}")
    return ms


def _busy(key: str) -> StoreError:
    return StoreError(f"spec {key!r:.200} was changed by others {TRIES} times meanwhile; try again")
