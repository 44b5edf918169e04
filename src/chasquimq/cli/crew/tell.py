"""What a handler raised, told in the log: for a desk, where somebody reads along.

In production it would be a line per failed run, in words that may hold customers' data; there the
events, the metrics and the DLQ have it.
"""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType

from chasquimq.job import Again, Dead, Job

log = logging.getLogger("chasquimq.worker")

_OURS = str(Path(__file__).parents[2])


def tell(job: Job, error: BaseException, verdict: Again | Dead) -> None:
    if isinstance(verdict, Again):
        then = f"it runs again in {verdict.delay_ms} ms"
    else:
        then = f"it lies in the DLQ: {verdict.reason}"
    log.warning(
        "job %s %s failed in run %d; %s",
        job.name or "without a name",
        job.id,
        verdict.attempt,
        then,
        exc_info=(type(error), error, _theirs(error.__traceback__)),
    )


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the handler's code begins."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace
