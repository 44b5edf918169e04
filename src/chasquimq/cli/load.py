"""Records become jobs, bulk after bulk, and every one of them is accounted for.

1. a batch is read, and what is no record ends the work, or is counted and left out;
2. it is sent as one bulk; what comes back says for each job whether it is in;
3. whatever ends the work, the tally tells which records are in, which are not, of which nobody
   knows, and where to go on. A Ctrl-C waits for the answers to the bulk at hand.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

from chasquimq.cli.bar import Bar
from chasquimq.cli.source import Bad, Record, Source
from chasquimq.errors import (
    ChasquiError,
    QueueFullError,
    ShutdownError,
    StoreError,
    UnconfirmedError,
    WireError,
)
from chasquimq.job import Job

BULK = 2_000
SHOWN_BAD = 20
_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

Numbered = tuple[int, Mapping[str, Any]]  # a record's number, and its job
Ready = list[Numbered]
Make = Callable[[Any], Mapping[str, Any]]  # a job as add_bulk takes it, from a record's value
Check = Callable[[Mapping[str, Any]], None]  # raises what add_bulk would
Send = Callable[[Sequence[Mapping[str, Any]]], Sequence[Job]]
Tell = Callable[[Sequence[Job]], None]


class Doubt(NamedTuple):
    number: int
    job_id: str | None


@dataclass
class Tally:
    """What became of the records."""

    added: int = 0
    duplicates: int = 0  # their ids were there already
    bad: list[Bad] = field(default_factory=list)  # those that were left out, the first of them
    bad_count: int = 0
    refused: Bad | None = None  # the one that ended the work
    doubts: list[Doubt] = field(default_factory=list)  # may be in, or not
    unsafe: list[Doubt] = field(default_factory=list)  # in, but less safely than asked for
    missing: list[int] = field(default_factory=list)  # before `ahead`, and not in
    ahead: int = 1  # the first record that was not dealt with
    job_id: str | None = None  # of the first

    def count(self, jobs: Sequence[Job]) -> None:
        again = sum(job.duplicate for job in jobs)
        self.added += len(jobs) - again
        self.duplicates += again
        if self.job_id is None and jobs:
            self.job_id = jobs[0].id


class Interrupts:
    """Ctrl-C and SIGTERM: at once between two bulks; during one, when it is answered. A second
    one does not wait."""

    def __init__(self) -> None:
        self._asked = self._busy = False
        self._before: dict[int, Any] = {}

    @contextmanager
    def held(self) -> Iterator[None]:
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._asked:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        waits, self._asked = self._busy and not self._asked, True
        if not waits:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)


class Loader:
    def __init__(
        self,
        source: Source,
        make: Make,
        check: Check,
        *,
        skip_bad: bool = False,
        tell: Tell = lambda jobs: None,
    ) -> None:
        self.tally = Tally()
        self.send: Send | None = None  # None: it is only checked
        self.bulk = BULK
        self.waits = False  # where the queue is full
        self._source = source
        self._make = make
        self._check = check
        self._skip_bad = skip_bad
        self._tell = tell
        self._interrupts = Interrupts()

    def run(self, bar: Bar) -> None:
        """Add everything. Raises what ended it early; the tally is right in any case."""
        tally, source, told = self.tally, self._source, 0
        tally.ahead = source.first
        with self._interrupts:
            while batch := source.batch(self.bulk):
                ready: Ready = []
                for item in batch:
                    made = self._made(item)
                    if not isinstance(made, Bad):
                        ready.append(made)
                    elif self._skip_bad and not made.last:
                        self._left_out(made)
                    else:
                        self._through(ready, bar)
                        raise self._refused(made)
                self._through(ready, bar)
                tally.ahead = batch[-1].number + 1
                bar.forward(source.at - told, tally.added + tally.duplicates)
                told = source.at

    def _made(self, item: Record | Bad) -> Numbered | Bad:
        if isinstance(item, Bad):
            return item
        try:
            return item.number, self._make(item.value)
        except ChasquiError as error:
            return Bad(item.number, str(error.args[0]))

    def _through(self, ready: Ready, bar: Bar) -> None:
        """Send a bulk. One that is refused because of what a job in it says is sifted."""
        if self.send is None:
            good, bad = self._sifted(ready)
            self.tally.added += len(good)
            self._past(good)
            if bad is not None:
                raise self._refused(bad)
            return
        pause_s = _PAUSE_S
        while ready:
            try:
                with self._interrupts.held():
                    ready = self._sent(ready)
            except (StoreError, ShutdownError):
                raise
            except ChasquiError:
                good, bad = self._sifted(ready)
                if bad is not None:
                    self._through(good, bar)
                    raise self._refused(bad) from None
                if len(good) == len(ready):
                    raise
                ready = good
                continue
            if ready:  # there was no room for these
                bar.say("waiting for room")
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        bar.say("adding")

    def _sent(self, ready: Ready) -> Ready:
        """Send them; answers those that are to be sent again, once there is room."""
        assert self.send is not None
        try:
            jobs = self.send([job for _, job in ready])
        except StoreError as error:
            return self._settled(ready, error)
        except BaseException as error:
            if not isinstance(error, ChasquiError) or isinstance(error, ShutdownError):
                self._doubted(ready)  # cut off: nobody has heard what became of them
            raise
        self._counted(jobs)
        self.tally.missing.clear()
        self._past(ready)
        return []

    def _settled(self, ready: Ready, error: StoreError) -> Ready:
        """Account for a bulk that did not go through; raises, unless it is to be sent again."""
        tally, outcomes = self.tally, error.outcomes
        if not outcomes:  # nothing was sent, but specs may have been written
            if any(job.get("repeat") is not None for _, job in ready):
                self._doubted(ready)
            raise error
        self._counted([outcome for outcome in outcomes if isinstance(outcome, Job)])
        doubts, again = [], []
        for (number, job), outcome in zip(ready, outcomes, strict=True):
            if isinstance(outcome, UnconfirmedError) and outcome.accepted:
                tally.unsafe.append(Doubt(number, outcome.job_id))
            elif isinstance(outcome, UnconfirmedError):
                doubts.append(Doubt(number, outcome.job_id))
            elif not isinstance(outcome, Job):
                again.append((number, job))
        tally.doubts += doubts
        late = [number for number, _ in again]
        self._past([one for one in ready if one[0] not in late])
        tally.missing = [number for number in late if number < tally.ahead]
        if self.waits and isinstance(error, QueueFullError) and not doubts:
            return again
        raise error

    def _counted(self, jobs: Sequence[Job]) -> None:
        self.tally.count(jobs)
        self._tell(jobs)

    def _doubted(self, ready: Ready) -> None:
        self.tally.doubts += [Doubt(number, job.get("job_id")) for number, job in ready]
        self._past(ready)

    def _past(self, ready: Ready) -> None:
        """These are dealt with."""
        if ready:
            self.tally.ahead = max(self.tally.ahead, ready[-1][0] + 1)

    def _sifted(self, ready: Ready) -> tuple[Ready, Bad | None]:
        """Those that can be sent; without `skip_bad` those before the first that cannot, and it."""
        good: Ready = []
        for number, job in ready:
            try:
                self._check(job)
            except ChasquiError as error:
                bad = Bad(number, str(error.args[0]))
                if not self._skip_bad:
                    return good, bad
                self._left_out(bad)
            else:
                good.append((number, job))
        return good, None

    def _left_out(self, bad: Bad) -> None:
        self.tally.bad_count += 1
        if len(self.tally.bad) < SHOWN_BAD:
            self.tally.bad.append(bad)

    def _refused(self, bad: Bad) -> WireError:
        self.tally.refused = bad
        self.tally.ahead = bad.number
        return WireError(f"{self._source.unit} {bad.number} of {self._source.name}: {bad.why}")
