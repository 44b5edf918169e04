"""Which dead jobs are meant. Pure: a row and a time in, yes or no out.

All filters that were given must hold. A time is a moment (datetime, UTC where it has no zone) or
an age (timedelta) before `now_ms`, which is the server's clock: the one that dead jobs carry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict, cast

import msgspec

from chasquimq.config import nearest, refuse_unknown
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import DeadEntry, Reason
from chasquimq.policy.moment import epoch_ms

Time = timedelta | datetime

LATER = ("stalled",)  # what jobs die of in newer releases of the reference


class Which(TypedDict, total=False):
    """The filters that all methods on the DLQ take, as keywords. None is none."""

    ids: Collection[str] | None
    name: str | None
    reason: str | None
    error_type: str | None
    older_than: Time | None
    newer_than: Time | None


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Filters that make sense. `ids` that are empty mean nobody; None means everybody."""

    ids: frozenset[str] | None = None
    name: str | None = None
    reason: str | None = None
    error_type: str | None = None
    older_than: Time | None = None
    newer_than: Time | None = None

    def __post_init__(self) -> None:
        for option in ("name", "reason", "error_type"):
            value = getattr(self, option)
            if value is not None and not isinstance(value, str):
                raise ArgumentError(f"{option} is a str, got {type(value).__name__}: {value!r:.80}")
        if self.reason is not None:
            _check_reason(self.reason)
        for option in ("older_than", "newer_than"):
            _check_time(option, getattr(self, option))

    @property
    def means_all(self) -> bool:
        return all(getattr(self, option) is None for option in self.__struct_fields__)

    @property
    def has_age(self) -> bool:
        """Whether it takes a clock to answer."""
        return isinstance(self.older_than, timedelta) or isinstance(self.newer_than, timedelta)

    def matches(self, entry: DeadEntry, job_id: str | None, now_ms: int) -> bool:
        """`job_id` is the row's own or its envelope's; it is looked at only if there are `ids`."""
        if self.ids is not None and entry.dlq_id not in self.ids and job_id not in self.ids:
            return False
        if self.name is not None and entry.name != self.name:
            return False
        if self.reason is not None and entry.reason != self.reason:
            return False
        if self.error_type is not None and entry.error_type != self.error_type:
            return False
        if self.older_than is not None and died_ms(entry) >= _moment_ms(self.older_than, now_ms):
            return False
        return self.newer_than is None or died_ms(entry) >= _moment_ms(self.newer_than, now_ms)


def select(which: Which, where: str, own: Iterable[str] = ()) -> Selection:
    """The filters, checked. `own` are the options that `where` has besides them."""
    given = cast(Mapping[str, Any], which)
    refuse_unknown(given, (*Which.__annotations__, *own), where)
    filters = {option: value for option, value in given.items() if value is not None}
    if "ids" in filters:
        filters["ids"] = _read_ids(filters["ids"])
    return Selection(**filters)


def died_ms(entry: DeadEntry) -> int:
    """When it was buried; a row that does not say so came into the DLQ when its id says."""
    if entry.failed_at_ms is not None:
        return entry.failed_at_ms
    return int(entry.dlq_id.partition("-")[0])


def _moment_ms(time: Time, now_ms: int) -> int:
    if isinstance(time, timedelta):
        return now_ms - time // timedelta(milliseconds=1)
    return epoch_ms(time)


def _read_ids(ids: object) -> frozenset[str]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Collection):
        raise ArgumentError(f"ids is a list of ids, got {type(ids).__name__}: {ids!r:.80}")
    for one in ids:
        if not isinstance(one, str):
            raise ArgumentError(f"an id is a str, got {type(one).__name__}: {one!r:.80}")
    return frozenset(ids)


def _check_reason(reason: str) -> None:
    known = [*(str(word) for word in Reason), *LATER]
    if reason not in known:
        raise ConfigError(f"nobody dies of {reason!r:.80}; {nearest(reason, known)}")


def _check_time(option: str, time: object) -> None:
    if time is None or isinstance(time, datetime):
        return
    if not isinstance(time, timedelta):
        raise ArgumentError(
            f"{option} is a timedelta (an age) or a datetime, "
            f"got {type(time).__name__}: {time!r:.80}"
        )
    if time < timedelta(0):
        raise ConfigError(f"{option} is an age, it must not be negative: {time}")
