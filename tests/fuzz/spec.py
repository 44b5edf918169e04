"""Whatever lies in the hash of a repeatable spec: a WireError, or a spec that packs to itself and
can be planned."""

from __future__ import annotations

import msgspec

from chasquimq import wire
from chasquimq.errors import ConfigError, WireError
from chasquimq.policy import repeat
from chasquimq.repeat import StoredSpec
from tests.fuzz.draw import Draw

NOW_MS = 1_794_771_784_391
ON_TIME_MS = 1_000
MOST = 5
KINDS = ("fixed", "exponential")


def check(data: bytes) -> None:
    draw = Draw(data)
    packed = draw.blob()
    override = draw.blob() if draw else None
    late_ms = draw.number(5)
    try:
        spec = wire.unpack_spec(packed)
    except WireError:
        return
    _reads_again(spec)
    try:
        # The mark in front ties the override to its spec; a fuzzer would not guess a hash.
        marked = None if override is None else wire.spec._mark(packed) + override
        wire.unpack_spec(packed, marked)
        wire.unpack_spec(packed, override)
    except WireError:
        pass
    _plans(spec, late_ms)


def _reads_again(spec: StoredSpec) -> None:
    packed = wire.pack_spec(spec)
    override = wire.pack_override(packed, spec.retry) or None
    again = wire.unpack_spec(packed, override)
    assert repr(again) == repr(_as_written(spec))
    assert wire.pack_spec(again) == packed


def _as_written(spec: StoredSpec) -> StoredSpec:
    """A kind of backoff that nobody knows is written as just that."""
    retry = spec.retry
    if retry is None or retry.backoff is None or retry.backoff.kind in KINDS:
        return spec
    backoff = msgspec.structs.replace(retry.backoff, kind="unknown")
    return msgspec.structs.replace(spec, retry=msgspec.structs.replace(retry, backoff=backoff))


def _plans(spec: StoredSpec, late_ms: int) -> None:
    score_ms = NOW_MS - late_ms
    try:
        first = repeat.first_fire(spec.pattern, NOW_MS, spec.start_after_ms)
        plan = repeat.plan(spec, score_ms, NOW_MS, ON_TIME_MS, MOST)
        shown = repeat.upcoming(spec, score_ms, MOST)
        repeat.take_up(spec, score_ms, NOW_MS)
    except ConfigError:
        return
    assert first is None or first > max(NOW_MS, spec.start_after_ms or 0)
    assert len(plan.fires) <= MOST and list(plan.fires) == sorted(set(plan.fires))
    assert all(score_ms <= fire <= NOW_MS for fire in plan.fires)
    assert plan.next_ms is None or not plan.fires or plan.next_ms > plan.fires[-1]
    assert shown == sorted(set(shown))
