"""What a queue offers for repeatable jobs: the public side of its timetable."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any

from chasquimq import wire
from chasquimq.config import ProducerOptions, suggesting
from chasquimq.engine.draft import Backoff, read_override
from chasquimq.engine.producer import now_ms
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
from chasquimq.repeat import RepeatableMeta

log = logging.getLogger(__name__)


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
        spec = read_spec(
            name,
            wire.encode(data),
            self._options,
            repeat=repeat,
            limit=limit,
            start_after=one_moment("start_after", start_after, start_after_ms),
            end_before=one_moment("end_before", end_before, end_before_ms),
            retry=read_override(attempts, backoff),
            missed_fires=missed_fires,
            key=key,
        )
        if job_id is not None:
            log.warning("job_id %r is not used: spec %r names its jobs itself", job_id, spec.key)
        await self._timetable().upsert(spec)
        return Job(spec.key, spec.job_name, data, 0, now_ms())

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

    async def next_fires(self, key: str | Pattern, n: int = 10) -> list[datetime]:
        """When a spec fires next, or a pattern would, on the clock of its zone."""
        return await self._timetable().next_fires(key, n)

    def _timetable(self) -> Timetable:
        return Timetable(self._here().store)
