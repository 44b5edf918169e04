"""What became of a queue from one look to the next: differences and rates. Pure.

Redis counts what ever came into a stream (`entries-added`), so between two looks

    in    = what was added to the stream: by producers, by promotion, by schedules, by replays
    out   = in - how much longer the stream has become: completed, put off for a retry, or dead
    dead  = what was added to the DLQ

None of these misses a job that came and went between two looks.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from chasquimq.store.inspect import Overview

SAMPLES = 600
WINDOW_MS = 10_000


class Rates(NamedTuple):
    """Per second, over so many ms."""

    come: float
    gone: float
    died: float
    over_ms: int


class _Sample(NamedTuple):
    at_ms: int
    depth: int
    added: int
    dlq_depth: int
    dlq_added: int
    waiting: int


class Trend:
    """The last looks at one queue."""

    def __init__(self, first: Overview) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES)
        self.last = first
        self.add(first)

    def add(self, one: Overview) -> None:
        waiting = one.counts.waiting if one.counts is not None else one.stream_depth
        sample = _Sample(
            one.at_ms, one.stream_depth, one.stream_added, one.dlq_depth, one.dlq_added, waiting
        )
        if self._samples and (
            sample.added < self._samples[-1].added or sample.at_ms < self._samples[-1].at_ms
        ):
            # Another stream, or another clock: nothing of before can be compared with it.
            self._samples.clear()
        self._samples.append(sample)
        self.last = one

    @property
    def stream_delta(self) -> int | None:
        """Since the look before; None: there was none."""
        if len(self._samples) < 2:
            return None
        return self._samples[-1].depth - self._samples[-2].depth

    @property
    def dlq_delta(self) -> int | None:
        if len(self._samples) < 2:
            return None
        return self._samples[-1].dlq_depth - self._samples[-2].dlq_depth

    @property
    def rates(self) -> Rates | None:
        """Over the last ten seconds, or since the look before where that is longer ago."""
        if len(self._samples) < 2:
            return None
        *before, last = self._samples
        recent = [one for one in before if one.at_ms >= last.at_ms - WINDOW_MS]
        first = recent[0] if recent else before[-1]
        over_ms = last.at_ms - first.at_ms
        if not over_ms:
            return None
        come = last.added - first.added
        gone = max(come - (last.depth - first.depth), 0)
        died = max(last.dlq_added - first.dlq_added, 0)
        each = 1_000 / over_ms
        return Rates(come * each, gone * each, died * each, over_ms)

    def waiting(self, most: int) -> list[int]:
        """How many jobs waited at each of the last looks, the newest last."""
        return [one.waiting for one in self._samples][-most:]

    def to_dict(self) -> dict[str, object]:
        rates = self.rates
        return {
            **self.last.to_dict(),
            "stream_delta": self.stream_delta,
            "dlq_delta": self.dlq_delta,
            "in_per_s": rates and round(rates.come, 3),
            "out_per_s": rates and round(rates.gone, 3),
            "dead_per_s": rates and round(rates.died, 3),
            "rates_over_ms": rates and rates.over_ms,
        }
