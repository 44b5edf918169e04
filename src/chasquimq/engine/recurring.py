"""What a queue offers for repeatable jobs: the public side of its timetable."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Required, TypedDict, Unpack

from chasquimq import wire
from chasquimq.config import ProducerOptions, suggesting
from chasquimq.engine.clock import now_ms
from chasquimq.engine.draft import Backoff, read_override
from chasquimq.engine.session import Session
from chasquimq.engine.timetable import (
    Missed,
    Moment,
    Pattern,
    Timetable,
    one_moment,
    read_spec,
)
from chasquimq.job import Job
from chasquimq.repeat import RepeatableMeta, StoredSpec

log = logging.getLogger("chasquimq.queue")


class Recipe(TypedDict, total=False):
    """What a caller says of a spec beside its name and its data."""

    repeat: Required[Pattern]
    limit: int | None
    start_after: Moment
    end_before: Moment
    start_after_ms: Moment
    end_before_ms: Moment
    attempts: int | None
    backoff: Backoff
    job_id: str | None
    missed_fires: Missed
    key: str | None


class Recurring:
    """The part of a Queue that is about specs."""

    _options: ProducerOptions

    def _here(self) -> Session:
        """The connections that belong to the running event loop."""
        raise NotImplementedError

    @suggesting
    async def upsert_repeatable_job(
        self,
        name: str,
        data: Any,
        *,
        repeat: Pattern,
        limit: int | None = None,
        start_after: Moment = None,
        end_before: Moment = None,
        start_after_ms: Moment = None,
        end_before_ms: Moment = None,
        attempts: int | None = None,
        backoff: Backoff = None,
        job_id: str | None = None,
        missed_fires: Missed = None,
        key: str | None = None,
    ) -> Job:
        """Write a spec from which a job is made at each moment of `repeat`; answers a Job whose
        id is the spec's key.

        Writing it again is safe: with the same pattern it goes on in its cadence. `limit`: it
        fires so many times; `start_after`, `end_before` (epoch ms or datetime): between them;
        `missed_fires`: what becomes of moments nobody was there for. `attempts` and `backoff`
        are for each of its jobs. `job_id` is taken for compatibility: jobs are called
        `<key>@<ms>`.
        """
        spec = self._recipe(
            name,
            data,
            repeat=repeat,
            limit=limit,
            start_after=start_after,
            end_before=end_before,
            start_after_ms=start_after_ms,
            end_before_ms=end_before_ms,
            attempts=attempts,
            backoff=backoff,
            job_id=job_id,
            missed_fires=missed_fires,
            key=key,
        )
        return await self._write(spec, data)

    @suggesting
    async def get_repeatable_jobs(
        self, limit: int = 100, *, after: RepeatableMeta | None = None
    ) -> list[RepeatableMeta]:
        """The specs by when they fire next; behind `after`, the last one of the page before.

        Those that are paused, or that a scheduler had to put aside, come last.
        """
        return await self._timetable().page(limit, after)

    async def remove_repeatable_by_key(self, key: str) -> bool:
        """Remove a spec: it fires no more. Jobs it has made stay. False if there is none."""
        return await self._timetable().remove(key)

    async def pause_repeatable(self, key: str) -> bool:
        """Let a spec fire no more until it is resumed; False if it does not fire anyway."""
        return await self._timetable().pause(key)

    async def resume_repeatable(self, key: str) -> bool:
        """Let a spec go on in its cadence, without what passed meanwhile; False if it was not
        paused, nor put aside by a scheduler."""
        return await self._timetable().resume(key)

    @suggesting
    async def next_fires(
        self, key: str | Pattern, n: int = 10, *, after: Moment = None
    ) -> list[datetime]:
        """When a spec fires next, or a pattern would, on the clock of its zone; `after` (epoch ms
        or datetime): not from now on but from then."""
        return await self._timetable().next_fires(key, n, after)

    def _recipe(self, name: str | None, data: Any, **options: Unpack[Recipe]) -> StoredSpec:
        """The spec that a caller describes; nothing is written yet."""
        start_ms, end_ms = options.get("start_after_ms"), options.get("end_before_ms")
        spec = read_spec(
            name,
            wire.encode(data),
            self._options,
            repeat=options["repeat"],
            limit=options.get("limit"),
            start_after=one_moment("start_after", options.get("start_after"), start_ms),
            end_before=one_moment("end_before", options.get("end_before"), end_ms),
            retry=read_override(options.get("attempts"), options.get("backoff")),
            missed_fires=options.get("missed_fires"),
            key=options.get("key"),
        )
        job_id = options.get("job_id")
        if job_id is not None:
            log.warning("job_id %r is not used: spec %r names its jobs itself", job_id, spec.key)
        return spec

    async def _write(self, spec: StoredSpec, data: Any) -> Job:
        await self._here().upsert(spec)
        return Job(spec.key, spec.job_name, data, 0, now_ms())

    def _timetable(self) -> Timetable:
        return Timetable(self._here().store)
