"""What follows from how a job ended: an ack, a kept result, another run, or the DLQ.

Everything goes out through the settler; what came of it is announced.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

from chasquimq import wire
from chasquimq.config import WorkerOptions
from chasquimq.engine.failure_log import FailureLog, Limiter
from chasquimq.engine.settler import Move, Settler
from chasquimq.errors import EncodeError, TimeLimitError, UnrecoverableError
from chasquimq.happening import Announce, Buried, Completed, Failed, RetryScheduled
from chasquimq.job import Again, Dead, Envelope
from chasquimq.policy.verdict import judge
from chasquimq.store import Holder, Jobs, Kept
from chasquimq.text import said, shown

log = logging.getLogger("chasquimq.worker")

_full = Limiter(60.0)  # of warnings about a DLQ, by queue

# Envelope, name, raw name, runs so far, what the handler gets, and if its id is unique until it
# is done, for how long at the most. A plain tuple: there is one per job, and a named one costs
# more to make than the envelope costs to decode.
Opened = tuple[Envelope, str, bytes, int, Any, bytes]
Wrap = Callable[[Any], bytes | None]  # what a handler returned -> its bytes, None to keep nothing


class Outcomes:
    def __init__(
        self,
        settler: Settler,
        jobs: Jobs,
        announce: Announce,
        wrap: Wrap,
        options: WorkerOptions,
    ) -> None:
        self._settler = settler
        self._jobs = jobs
        self._announce = announce
        self._wrap = wrap
        self._options = options
        self.failures = FailureLog(jobs.queue, options)
        self.names: dict[bytes, str] = {}

    def completed(self, opened: Opened, entry_id: bytes, duration_us: int) -> None:
        envelope, name, _, ran, _, unique = opened
        self._announce(Completed(envelope.id, name, ran + 1, duration_us))
        if unique:
            self.free(opened, entry_id)
        else:
            self._settler.ack(entry_id)

    def free(self, opened: Opened, entry_id: bytes, result: bytes | None = None) -> None:
        """It is done, and so its id is free again."""
        holder = _holder(opened[0])
        command = self._jobs.free(entry_id, holder, result, self._options.results.ttl_s)
        self._settler.move(Move(entry_id, command, _nothing, opened[0].id))

    def returned(
        self, opened: Opened, entry_id: bytes, result: Any, duration_us: int
    ) -> UnrecoverableError | None:
        """The same, and what the handler returned is kept; answers why it cannot be. The result
        is written ahead of the `completed` event, in one write: whoever sees the event can read
        the result."""
        try:
            kept = self._wrap(result)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # its own methods are asked, and may raise anything
            return _unkept(error)
        if kept is None:
            self.completed(opened, entry_id, duration_us)
            return None
        options, envelope = self._options.results, opened[0]
        if len(kept) > options.max_bytes:
            return _unkept(
                EncodeError(f"it is {len(kept)} bytes, the limit is {options.max_bytes}")
            )
        if opened[5]:
            self.free(opened, entry_id, kept)
        else:
            self._settler.finish(Kept(entry_id, envelope.id, kept))
        self._announce(Completed(envelope.id, opened[1], opened[3] + 1, duration_us))
        return None

    def failed(
        self, opened: Opened, entry_id: bytes, error: BaseException, duration_us: int
    ) -> Again | Dead:
        envelope, name, raw_name, ran, _, unique = opened
        ran += 1
        text = said(error) or type(error).__name__
        timed_out = isinstance(error, TimeLimitError)
        self._announce(Failed(envelope.id, name, ran, duration_us, text, timed_out))
        verdict = judge(envelope, ran, error, self._options.retry, random.randrange)
        if isinstance(verdict, Dead):
            body = wire.pack_envelope(envelope)
            known = (envelope, unique)
            self._bury(entry_id, body, raw_name, verdict, known, error=error)
        else:
            self._retry(entry_id, opened, verdict)
        self.failures.failed(envelope, name, ran, error, verdict)
        return verdict

    def _retry(self, entry_id: bytes, opened: Opened, again: Again) -> None:
        envelope, name, raw_name, _, _, unique = opened
        envelope.attempt = again.attempt
        member = wire.join_member(raw_name, wire.pack_envelope(envelope))
        holder = _holder(envelope) if unique else None
        command = self._jobs.retry(entry_id, again.delay_ms, member, holder)

        def moved(answer: int) -> None:
            if answer:
                happening = RetryScheduled(envelope.id, name, again.attempt + 1, again.delay_ms)
                self._announce(happening)

        self._settler.move(Move(entry_id, command, moved, envelope.id))

    def bury(
        self,
        entry_id: bytes,
        body: bytes,
        raw_name: bytes,
        dead: Dead,
        known: tuple[Envelope, bytes] | None = None,
        *,
        error: BaseException | None = None,
        detail: str | None = None,
    ) -> None:
        """Bury a job that cannot run. `known`: its envelope if that can be read, and its unique
        id's limit."""
        self._bury(entry_id, body, raw_name, dead, known, error=error, detail=detail)
        job_id = known[0].id if known is not None else ""
        self.failures.not_run(job_id, self.name(raw_name), dead.reason, detail or error)

    def _bury(
        self,
        entry_id: bytes,
        body: bytes,
        raw_name: bytes,
        dead: Dead,
        known: tuple[Envelope, bytes] | None,
        *,
        error: BaseException | None = None,
        detail: str | None = None,
    ) -> None:
        envelope, unique = known or (None, b"")
        job_id = envelope.id if envelope is not None else ""
        fields = wire.pack_dead(
            body,
            raw_name,
            entry_id,
            dead.reason,
            detail=detail,
            job_id=job_id or None,
            unique=unique,
            attempt=dead.attempt,
            error_type=type(error).__name__ if error is not None else None,
            error=said(error) if error is not None else None,
        )
        options = self._options.dead
        trim = options.max_len if options.on_full == "trim" else 0
        holder = _holder(envelope) if envelope is not None and unique else None
        command = self._jobs.bury(entry_id, fields, trim, holder)

        def moved(length: int) -> None:
            if length:
                if length > options.max_len and not trim:
                    self._warn_of_length(length)
                happening = Buried(job_id, self.name(raw_name), dead.attempt, dead.reason)
                self._announce(happening)

        self._settler.move(Move(entry_id, command, moved, job_id))

    def _warn_of_length(self, length: int) -> None:
        queue, limit = self._jobs.queue, self._options.dead.max_len
        if _full.admits(queue, time.monotonic()):
            shown_queue = shown(queue)
            log.warning(
                "the DLQ of queue '%s' holds %d jobs, more than dlq_max_stream_len=%d; look at "
                "them with `chasqui dlq peek %s`, then bring them back with `chasqui dlq replay` "
                "or remove them with `chasqui dlq purge`",
                shown_queue,
                length,
                limit,
                shown_queue,
            )

    def name(self, raw_name: bytes) -> str:
        name = self.names.get(raw_name)
        if name is None:
            if len(self.names) > 1000:
                self.names.clear()
            name = self.names[raw_name] = wire.decode_name(raw_name)
        return name


def _unkept(error: BaseException) -> UnrecoverableError:
    """Running it again would only end the same way, so it is buried, and says why."""
    why = said(error) or type(error).__name__
    return UnrecoverableError(f"what the handler returned cannot be kept as its result: {why}")


def _holder(envelope: Envelope) -> Holder:
    """The job, as the marker of its unique id knows it."""
    return Holder(envelope.id, envelope.created_at_ms)


def _nothing(answer: int) -> None:
    pass
