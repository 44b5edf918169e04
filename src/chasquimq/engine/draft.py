"""What a caller asked for, checked and made precise before anything is sent. Pure.

A draft is a job that can be sent: its parts are encoded and within the limits, its time is
settled. Everything wrong with it has been said by then.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, SupportsIndex

from chasquimq import wire
from chasquimq.config import MAX_MS, U32, ProducerOptions, one_of, refuse_unknown
from chasquimq.errors import ArgumentError, ChasquiError, ConfigError, PayloadTooLargeError
from chasquimq.job import BackoffSpec, Draft, Due, RetryOverride, Unique
from chasquimq.policy.moment import epoch_ms

Delay = int | float | datetime | timedelta | None
Backoff = int | timedelta | BackoffSpec | Mapping[str, Any] | None
Wait = tuple[Due, int]  # when to run, and how many ms from now that is

# What an envelope adds to its payload at the most, the caller's id apart.
_ENVELOPE_BYTES = 64
_RETRY_BYTES = 64

DONE_WITHIN_S = 86_400  # an id that is unique until done, and whose job is never heard of again
MAX_UNIQUE_MS = 10 * 366 * 86_400_000


def plain(name: str | None, data: Any, options: ProducerOptions) -> tuple[bytes, bytes]:
    """Name and payload of a job without options, as most are."""
    raw_name = b"" if name is None else wire.check_name(name)
    payload = wire.encode(data)
    size = len(payload) + _ENVELOPE_BYTES
    if size > options.max_payload_bytes:
        raise PayloadTooLargeError(size, options.max_payload_bytes)
    return raw_name, payload


def listed(jobs: Any) -> Sequence[Mapping[str, Any]]:
    """The jobs of a bulk, which are gone through more than once: an iterator could not be."""
    if isinstance(jobs, list | tuple):
        return jobs
    if isinstance(jobs, Mapping) or not isinstance(jobs, Iterable):
        raise ArgumentError(f"add_bulk takes a list of jobs, got {type(jobs).__name__}")
    return list(jobs)


def refuse_strange(jobs: Sequence[Any]) -> None:
    for place, job in enumerate(jobs):
        if not isinstance(job, Mapping):
            error = ArgumentError(
                f"a job of add_bulk is a dict with 'name' and 'data', got {type(job).__name__}"
            )
            error.add_note(f"job {place} of the bulk; nothing was sent")
            raise error


def plain_all(jobs: Sequence[Mapping[str, Any]], options: ProducerOptions) -> list[Draft] | None:
    """The same for a bulk, if all have a name and data and nothing else, and nothing is wrong with
    any; None: each has to be looked at."""
    names, drafts = dict[str | None, bytes](), list[Draft]()
    most = options.max_payload_bytes - _ENVELOPE_BYTES
    try:
        payloads = wire.encode_many([job["data"] for job in jobs])
        for job, payload in zip(jobs, payloads, strict=True):
            name = job["name"]
            raw_name = names.get(name)
            if raw_name is None:
                raw_name = names[name] = b"" if name is None else wire.check_name(name)
            if len(job) != 2 or len(payload) > most:
                return None
            drafts.append(Draft(raw_name, payload))
    except (ChasquiError, KeyError, TypeError):
        return None
    return drafts


def draft(
    name: str | None,
    data: Any,
    now_ms: int,
    options: ProducerOptions,
    *,
    delay_ms: Delay = None,
    delay: Delay = None,
    attempts: int | None = None,
    backoff: Backoff = None,
    job_id: str | None = None,
    unique: str | None = None,
    unique_for: float | timedelta | None = None,
) -> Draft:
    retry = read_override(attempts, backoff)
    wait = None
    if delay_ms is not None or delay is not None:
        wait = read_delay(delay_ms, delay, now_ms)
    once = None
    if unique is not None or unique_for is not None:
        once = read_unique(unique, unique_for, job_id)
    return _draft(name, wire.encode(data), options, job_id, retry, wait, once)


def read_override(attempts: int | None, backoff: Backoff) -> RetryOverride | None:
    """A job's own rules; None where it has none."""
    if attempts is None and backoff is None:
        return None
    return RetryOverride(_attempts("attempts", attempts), read_backoff(backoff))


def raw_draft(
    payload: bytes,
    options: ProducerOptions,
    *,
    name: str | None = None,
    job_id: str | None = None,
    retry: RetryOverride | None = None,
    wait: Wait | None = None,
) -> Draft:
    """The same of a payload that is bytes already; what is in them is the caller's affair."""
    return _draft(name, read_payload(payload), options, job_id, retry, wait)


def _draft(
    name: str | None,
    payload: bytes,
    options: ProducerOptions,
    job_id: str | None,
    retry: RetryOverride | None,
    wait: Wait | None,
    unique: Unique | None = None,
) -> Draft:
    raw_name = b"" if name is None else wire.check_name(name)
    own_id = None if job_id is None else wire.check_job_id(job_id)
    size = len(payload) + _ENVELOPE_BYTES + len(own_id or b"")
    size += _RETRY_BYTES if retry is not None else 0
    if size > options.max_payload_bytes:
        raise PayloadTooLargeError(size, options.max_payload_bytes)
    if wait is None:
        return Draft(raw_name, payload, own_id, retry, unique=unique)
    due, wait_ms = wait
    _check_limit(wait_ms, options)
    return Draft(raw_name, payload, own_id, retry, due if wait_ms > 0 else None, wait_ms, unique)


def read_payload(payload: bytes) -> bytes:
    if type(payload) is bytes:
        return payload
    if not isinstance(payload, bytes):
        raise ArgumentError(f"a payload is bytes, got {type(payload).__name__}; encode it")
    # A derived type may answer anything when it is asked for its bytes; its buffer does not.
    return memoryview(payload).tobytes()


def read_delay(delay_ms: Delay, delay: Delay, now_ms: int) -> Wait:
    """When to run, and how many ms from now that is (0 or less: at once)."""
    if delay_ms is not None and delay is not None:
        raise ConfigError("give delay_ms or delay, not both")
    value = delay_ms if delay_ms is not None else delay
    if isinstance(value, datetime):
        return _at(value, now_ms)
    if isinstance(value, timedelta):
        value = value // timedelta(milliseconds=1)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentError(
            f"a delay is a number of ms, a timedelta or a datetime, got {type(value).__name__}"
        )
    # Programs match on "must be finite non-negative": these are the reference's words.
    if value < 0 or (isinstance(value, float) and not math.isfinite(value)):
        option = "delay_ms" if delay_ms is not None else "delay"
        raise ConfigError(
            f"{option} must be finite non-negative, got {value} ms; leave it out, or give 0, for a "
            "job that is to run at once"
        )
    wait_ms = int(value)
    if wait_ms > MAX_MS - now_ms:
        raise ConfigError(f"a delay of {wait_ms} ms lies beyond what Redis can count exactly")
    return Due(wait_ms), wait_ms


def read_time(delay_ms: Delay, delay: Delay, now_ms: int, options: ProducerOptions) -> Due:
    """When a delayed job is to run instead; a moment that has passed means now."""
    if delay_ms is None and delay is None:
        raise ConfigError("give delay_ms or delay: when is the job to run?")
    due, wait_ms = read_delay(delay_ms, delay, now_ms)
    _check_limit(wait_ms, options)
    return due if wait_ms > 0 else Due(0)


def _check_limit(wait_ms: int, options: ProducerOptions) -> None:
    limit_s = options.max_delay_secs
    if limit_s and wait_ms // 1000 > limit_s:
        raise ConfigError(
            f"a delay of {wait_ms // 1000} s exceeds max_delay_secs ({limit_s}); "
            "raise it (0 means no limit), or schedule the job later"
        )


def _at(moment: datetime, now_ms: int) -> Wait:
    at_ms = epoch_ms(moment)
    if at_ms < 0:
        raise ConfigError(f"a job cannot run before 1970: {moment.isoformat()}")
    return Due(at_ms, absolute=True), at_ms - now_ms


def read_unique(mode: str | None, period: float | timedelta | None, job_id: str | None) -> Unique:
    """For how long a caller's id admits no second job."""
    if mode is not None:
        one_of("unique", mode, ("until_done",))
    if job_id is None:
        raise ConfigError("a unique job needs a job_id: it is what is unique; give it one")
    if period is None:
        return Unique(DONE_WITHIN_S, until_done=True)
    if isinstance(period, timedelta):
        period = period / timedelta(milliseconds=1)
    elif isinstance(period, bool) or not isinstance(period, int | float):
        raise ArgumentError(
            f"unique_for is a timedelta or a number of ms, got {type(period).__name__}"
        )
    if not 0 < period <= MAX_UNIQUE_MS:
        raise ConfigError(
            f"unique_for must be more than nothing and at most ten years, got {period} ms"
        )
    return Unique(math.ceil(period / 1000), until_done=mode is not None)


def read_wait(delay_ms: int, now_ms: int) -> Wait:
    """The native door's delay: whole ms from now."""
    return read_delay(_whole("delay_ms", delay_ms), None, now_ms)


def read_moment(when_ms: int, now_ms: int) -> Wait:
    """The native door's moment: epoch ms."""
    at_ms = _whole("when_ms", when_ms)
    if not 0 <= at_ms <= MAX_MS:
        raise ConfigError(f"when_ms must be epoch ms from 0 to {MAX_MS}, got {at_ms}")
    return Due(at_ms, absolute=True), at_ms - now_ms


def _whole(option: str, value: SupportsIndex) -> int:
    try:
        return int(operator.index(value))
    except TypeError:
        raise ArgumentError(f"{option} is a whole number of ms, got {value!r:.80}") from None


def read_retry(retry: Mapping[str, Any] | None) -> RetryOverride | None:
    """The native door's override. One that says nothing is an override all the same."""
    if retry is None:
        return None
    if not isinstance(retry, Mapping):
        raise ArgumentError(f"retry is a dict, got {type(retry).__name__}: {retry!r:.80}")
    refuse_unknown(retry, RetryOverride.__struct_fields__, "retry")
    attempts = _attempts("max_attempts", retry.get("max_attempts"))
    return RetryOverride(attempts, read_backoff(retry.get("backoff")))


def _attempts(option: str, attempts: int | None) -> int | None:
    if attempts is None:
        return None
    if not isinstance(attempts, int) or not 0 <= attempts <= U32:
        raise ConfigError(f"{option} must be a whole number from 0 to {U32}, got {attempts!r}")
    return int(attempts)


def read_backoff(backoff: Backoff) -> BackoffSpec | None:
    """A number of ms and a timedelta are a fixed delay, a dict has the names of a BackoffSpec."""
    if backoff is None:
        return None
    if isinstance(backoff, timedelta):
        backoff = backoff // timedelta(milliseconds=1)
    if isinstance(backoff, bool) or not isinstance(backoff, int | BackoffSpec | Mapping):
        raise ArgumentError(
            "backoff is a whole number of ms, a timedelta, a BackoffSpec or a dict, "
            f"got {backoff!r:.80}"
        )
    if isinstance(backoff, int):
        spec = BackoffSpec.fixed(backoff)
    else:
        # Through the dict form, which looks at kind and types: a constructor does not.
        named = backoff.to_dict() if isinstance(backoff, BackoffSpec) else backoff
        spec = BackoffSpec.from_dict(named)
    for ms in (spec.delay_ms, spec.max_delay_ms, spec.jitter_ms):
        if ms is not None and ms > MAX_MS:
            raise ConfigError(f"a backoff of {ms} ms lies beyond what Redis can count exactly")
    return spec
