"""Log failed runs and burials of jobs: few lines in a storm of failures, then their count.

1. ask the limiter, before anything is formatted: one line per queue, job name, error type and
   second, and 18 a second in a process;
2. write the line: a warning for a run that is retried, an error with the traceback for a burial;
3. count what was not written, and log the count a second later, or when the worker stops. With
   the counts a worker writes at most 20 lines a second.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections import deque
from collections.abc import Hashable
from pathlib import Path
from types import TracebackType

from chasquimq.config import WorkerOptions
from chasquimq.happening import Announce, Completed, Happening
from chasquimq.job import Again, Dead, Envelope, Reason
from chasquimq.policy.verdict import budget
from chasquimq.text import discreet, said, shown

log = logging.getLogger("chasquimq.worker")

LINES = 18  # a second; with the count of a second, and that of a worker that stops, 20
COUNT_S = 1.0
REMEMBERED = 100  # keys of a limiter, before it forgets the old ones
KINDS = 500  # of failures that are counted apart
SHOWN_KINDS = 5
NAME, TEXT = 80, 500  # characters of a name or an id, and of an error
MESSAGE, TRACE = 1_000, 8_000  # of an error in a traceback, and of the traceback

WHY_NOT_RUN = {
    Reason.MALFORMED: "the entry is not a job",
    Reason.OVERSIZE_PAYLOAD: "it is larger than max_payload_bytes",
    Reason.DECODE_FAILED: "its data cannot be decoded",
    Reason.RETRIES_EXHAUSTED: "no attempt is left: its last runs ended with their workers, or its "
    "attempts are 0",
}
_OURS = str(Path(__file__).parents[1])
_OTHERS = ("", "")


class Limiter:
    """Admits a key at most once in `every_s` seconds, and `most` keys in that time. The clock is
    an argument."""

    def __init__(self, every_s: float = 1.0, most: int | None = None) -> None:
        self._every_s = every_s
        self._last: dict[Hashable, float] = {}
        self._recent: deque[float] = deque(maxlen=REMEMBERED if most is None else most)
        self._most = most

    def admits(self, key: Hashable, now_s: float) -> bool:
        last_s, every_s = self._last.get(key), self._every_s
        if last_s is not None and now_s - last_s < every_s:
            return False
        recent = self._recent
        if len(recent) == self._most and now_s - recent[0] < every_s:
            return False
        if len(self._last) >= REMEMBERED:
            self._last = {key: at for key, at in self._last.items() if now_s - at < every_s}
        self._last[key] = now_s
        recent.append(now_s)
        return True


_limiter = Limiter(most=LINES)  # one for all workers of the process


class FailureLog:
    """The failures of one worker."""

    def __init__(self, queue: str, options: WorkerOptions) -> None:
        self._queue = queue
        self._options = options
        self._enabled = options.log_failures or options.log_runs
        self._all = options.log_runs
        self._missed: dict[tuple[str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def failed(
        self, envelope: Envelope, name: str, ran: int, error: BaseException, verdict: Again | Dead
    ) -> None:
        """Log a run that failed, and what follows."""
        kind = type(error).__name__
        level = logging.ERROR if type(verdict) is Dead else logging.WARNING
        if self._admits(level, name, kind):
            attempts = f"attempt {ran} of {budget(envelope, self._options.retry)}"
            text = f"{_shown(kind, NAME)}: {_shown(said(error), TEXT)}".removesuffix(": ")
            job = _job(self._queue, name, envelope.id)
            self._write(
                level,
                f"{job} failed ({attempts}): {text}; {_what_follows(verdict)}",
                error if level == logging.ERROR or self._all else None,
            )

    def not_run(
        self, job_id: str, name: str, reason: Reason, why: BaseException | str | None
    ) -> None:
        """Log a job that is buried without another run."""
        if self._admits(logging.WARNING, name, reason):
            words = said(why) if isinstance(why, BaseException) else why
            words = _shown(words or WHY_NOT_RUN.get(reason, ""), TEXT)
            job = _job(self._queue, name, job_id)
            self._write(
                logging.WARNING,
                f"{job} was not run and is moved to the DLQ ({reason}): {words}".removesuffix(": "),
            )

    def end(self) -> None:
        """Log the count of what was not written, now that the worker stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._count()

    # -- whether there is a line -------------------------------------------------------------------

    def _admits(self, level: int, name: str, kind: str) -> bool:
        if not self._enabled:
            return False
        if self._all or _limiter.admits((self._queue, name, kind, level), time.monotonic()):
            return log.isEnabledFor(level)
        missed, key = self._missed, (name, kind)
        if key not in missed and len(missed) >= KINDS:
            key = _OTHERS
        missed[key] = missed.get(key, 0) + 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COUNT_S, self._count)
        return False

    def _count(self) -> None:
        missed, self._missed, self._timer = self._missed, {}, None
        total, others = sum(missed.values()), missed.pop(_OTHERS, 0)
        most = sorted(missed, key=missed.__getitem__, reverse=True)
        kinds = [
            f"{missed[key]} of {_shown(key[1], NAME)} in '{_shown(key[0], NAME)}'"
            for key in most[:SHOWN_KINDS]
        ]
        others += sum(missed[key] for key in most[SHOWN_KINDS:])
        if others:
            kinds.append(f"{others} of other kinds")
        log.warning(
            "and %d more failure%s in the last second in queue '%s': %s",
            total,
            "" if total == 1 else "s",
            _shown(self._queue, NAME),
            ", ".join(kinds),
        )

    # -- the line ----------------------------------------------------------------------------------

    def _write(self, level: int, text: str, error: BaseException | None = None) -> None:
        info = None
        if error is not None and (trace := _from_handler(error.__traceback__)) is not None:
            info = (type(error), error, trace)
        record = log.makeRecord(log.name, level, __file__, 0, text, (), info)
        if info is not None:
            # Formatters use it as it is: no word of the error may look like another record.
            record.exc_text = _shown_trace(info[1], info[2])
        log.handle(record)


def log_completed(queue: str) -> Announce:
    """A sink that logs runs that succeeded."""

    def hear(happening: Happening) -> None:
        if isinstance(happening, Completed):
            job = _job(queue, happening.name, happening.job_id)
            log.info("%s done in %.1f ms", job, happening.duration_us / 1000)

    return hear


def _job(queue: str, name: str, job_id: str) -> str:
    named = f"job '{_shown(name, NAME)}'" if name else "a job without a name"
    return f"{named} {_shown(job_id, NAME) or '(id unknown)'} of queue '{_shown(queue, NAME)}'"


def _what_follows(verdict: Again | Dead) -> str:
    if isinstance(verdict, Dead):
        return f"moved to the DLQ ({verdict.reason})"
    seconds = verdict.delay_ms / 1000
    return f"retrying in {f'{seconds:,.0f}' if seconds >= 60 else f'{seconds:g}'} s"


def _shown(text: str, widest: int) -> str:
    """Cut last: half of a URL does not look like one, and would show half of its password."""
    return shown(discreet(text[: 4 * widest]), widest)


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the handler's code begins; None: no code of it is there."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return trace


def _shown_trace(error: BaseException, trace: TracebackType) -> str:
    try:
        found = traceback.TracebackException(type(error), error, trace)
        _escape(found)
        whole = "".join(found.format())
    except KeyboardInterrupt:
        raise
    except BaseException:  # notes may be no texts, a chain may have no end, and any may raise
        whole = "".join(traceback.format_tb(trace))
    text = "\n".join(shown(line) for line in discreet(whole[-4 * TRACE :]).rstrip("\n").split("\n"))
    return text if len(text) <= TRACE else f"…{text[1 - TRACE :]}"  # the last calls say most


def _escape(found: traceback.TracebackException) -> None:
    """Let no word of an error, or of those that it came from, begin a line."""
    for field in ("_str", "text", "msg"):  # the last two: of a SyntaxError
        text = getattr(found, field, None)
        if isinstance(text, str):
            setattr(found, field, _shown(text, MESSAGE))
    if found.__notes__:
        found.__notes__ = [_shown(str(note), MESSAGE) for note in found.__notes__]
    for other in (found.__cause__, found.__context__, *(found.exceptions or ())):
        if other is not None:
            _escape(other)
