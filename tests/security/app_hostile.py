"""A worker for `chasqui worker` whose handlers fail with what strangers wrote."""

from __future__ import annotations

import logging
import os

from chasquimq import Job, Worker

log = logging.getLogger("app")


async def handle(job: Job) -> str:
    log.warning("begin %s", job.name, extra={"job": job.id, "data": job.data})
    raise ValueError(f"{job.name} {job.data}")


worker = Worker(os.environ.get("CREW_QUEUE", "crew"), handle, max_attempts=1)
