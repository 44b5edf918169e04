"""What a queue's door does with specs: write, list, pause, take up, preview, remove.

1. a spec is read and checked whole before anything is connected to;
2. whoever changes one says how he saw it; if that is no longer true, he looks again.
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from chasquimq import wire
from chasquimq.config import MAX_MS, ProducerOptions
from chasquimq.errors import (
    ArgumentError,
    ConfigError,
    PayloadTooLargeError,
    StoreError,
    WireError,
)
from chasquimq.job import RetryOverride
from chasquimq.policy.moment import epoch_ms
from chasquimq.policy.repeat import first_fire, take_up, upcoming, zone
from chasquimq.repeat import (
    PAUSED_MS,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
    StoredSpec,
)
from chasquimq.store import Store
from chasquimq.store.specs import Seen, Specs

Moment = int | datetime | None
Pattern = RepeatPattern | Mapping[str, Any]
Missed = MissedFiresPolicy | Mapping[str, Any] | None

MAX_KEY_BYTES = 990  # a fire's id is its spec's key and the moment, and an id has 1 KiB
MAX_PREVIEW = 10_000
TRIES = 100  # how often others may come between a look and a change
_ENVELOPE_BYTES = 128


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
    pattern, name = RepeatPattern.read(repeat), name or ""
    wire.check_name(name)
    first_fire(pattern, 0)  # raises what is wrong with it
    key = _checked_key(wire.resolved_key(key, name, pattern))
    size = len(payload) + len(key.encode()) + _ENVELOPE_BYTES
    if size > options.max_payload_bytes:
        raise PayloadTooLargeError(size, options.max_payload_bytes)
    start_ms, end_ms = _moment("start_after", start_after), _moment("end_before", end_before)
    return StoredSpec(
        key=key,
        job_name=name,
        pattern=pattern,
        payload=payload,
        limit=_whole("limit", limit),
        start_after_ms=start_ms,
        end_before_ms=end_ms,
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
            if await specs.put(seen, packed, retry, None if keep else next_ms):
                return next_ms
        raise _busy(spec.key)

    async def page(self, limit: int, after: RepeatableMeta | None = None) -> list[RepeatableMeta]:
        most = _whole("limit", limit) or 0
        if after is not None and not isinstance(after, RepeatableMeta):
            raise ArgumentError(
                f"after is the last RepeatableMeta of a page, got {type(after).__name__}"
            )
        behind = None
        if after is not None:
            aside = after.paused or after.problem is not None
            behind = PAUSED_MS if aside else after.next_fire_ms, after.key
        return [_meta(seen) for seen in await (await self._specs()).page(most, behind)]

    async def remove(self, key: str) -> bool:
        _checked_key(key, mine=False)
        return await (await self._specs()).drop(key)

    async def pause(self, key: str) -> bool:
        """False if there is no such spec, or it does not fire anyway."""
        return await self._change(key, _paused)

    async def resume(self, key: str) -> bool:
        """False if there is no such spec, or it was not put aside."""
        return await self._change(key, _resumed)

    async def _change(self, key: str, change: Callable[[Seen, int], Move | None]) -> bool:
        _checked_key(key, mine=False)
        specs = await self._specs()
        for _ in range(TRIES):
            now_ms, seen = await specs.see(key)
            to = change(seen, now_ms) if seen.armed else None
            if to is None:
                return False
            if await specs.move(seen, *to):
                return True
        raise _busy(key)

    async def next_fires(self, what: str | Pattern, count: int) -> list[datetime]:
        """The next fires of a spec, or of a pattern from now on, on the clock of its zone."""
        most = min(_whole("n", count) or 0, MAX_PREVIEW)
        if not isinstance(what, str):
            pattern = RepeatPattern.read(what)
            now_ms = await (await self._specs()).clock_ms()
            first_ms = first_fire(pattern, now_ms)
            spec = StoredSpec(key="", job_name="", pattern=pattern, payload=b"")
        else:
            now_ms, seen = await self._see(what)
            spec = _read(seen)
            first_ms = seen.stood if seen.live else take_up(spec, seen.stood, now_ms)
            if spec.limit:
                most = min(most, max(spec.limit - seen.fired, 0))
        found = [] if first_ms is None else upcoming(spec, first_ms, most)
        where = zone(spec.pattern)
        return [datetime.fromtimestamp(at_ms / 1000, where) for at_ms in found]

    async def recipe(self, key: str) -> StoredSpec:
        """The spec under this key; ConfigError if there is none, or it cannot be read."""
        _, seen = await self._see(key)
        return _read(seen)

    async def _see(self, key: str) -> tuple[int, Seen]:
        _checked_key(key, mine=False)
        now_ms, seen = await (await self._specs()).see(key)
        if not seen.armed:
            raise ConfigError(f"there is no spec {key!r:.200}; get_repeatable_jobs() lists them")
        return now_ms, seen

    async def _specs(self) -> Specs:
        return (await self._store()).specs


Move = tuple[int, str]  # the new score, and why it was put aside


def _paused(seen: Seen, now_ms: int) -> Move | None:
    return (PAUSED_MS, f"{seen.score} ") if seen.live else None


def _resumed(seen: Seen, now_ms: int) -> Move | None:
    if seen.live:
        return None
    spec = _read(seen)
    next_ms = take_up(spec, seen.stood if seen.stood < PAUSED_MS else now_ms, now_ms)
    if next_ms is None:
        raise ConfigError(f"spec {spec.key!r:.200} has no fire left; remove it, or write it anew")
    return next_ms, ""


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
    key = seen.key.decode(errors="replace")
    try:
        spec = seen.read()
    except WireError as error:
        unread = RepeatPattern("unreadable")
        why = seen.problem or str(error.args[0])
        return RepeatableMeta(key, "", unread, seen.stood, fired=seen.fired, problem=why)
    skips = spec.missed_fires.kind == "skip"
    retry = spec.retry or RetryOverride()
    return RepeatableMeta(
        key,
        spec.job_name,
        spec.pattern,
        seen.stood,
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        None if skips else spec.missed_fires,
        seen.fired,
        paused=not seen.live and seen.problem is None,
        problem=seen.problem,
        attempts=retry.max_attempts,
        backoff=retry.backoff,
    )


def _checked_key(key: str, *, mine: bool = True) -> str:
    if not isinstance(key, str):
        raise ArgumentError(f"the key of a spec is a str, got {type(key).__name__}")
    try:
        size = len(key.encode())
    except UnicodeEncodeError as error:
        raise ConfigError(f"the key of a spec is no valid text: {key[:80]!r}") from error
    if mine and size > MAX_KEY_BYTES:
        raise ConfigError(
            f"the key of a spec has {size} bytes, {MAX_KEY_BYTES} at the most; give key= one"
        )
    return key


def _moment(name: str, moment: Moment) -> int | None:
    ms = epoch_ms(moment) if isinstance(moment, datetime) else _whole(name, moment)
    if ms is not None and not 0 <= ms < MAX_MS:
        raise ConfigError(f"{name} must be a moment since 1970, got {moment}")
    return ms


def _whole(name: str, value: int | None) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool):
        raise ArgumentError(f"{name} is a whole number, got {value}")
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is a whole number, got {value!r:.80}") from None
    if not 0 <= number <= MAX_MS:
        raise ConfigError(f"{name} must be from 0 to {MAX_MS}, got {number}")
    return number


def _busy(key: str) -> StoreError:
    return StoreError(f"spec {key!r:.200} was changed by others {TRIES} times meanwhile; try again")
