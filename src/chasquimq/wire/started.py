"""What a consumer had started when it last renewed its leases: its record in the hash `started`.

    first 100+64 1700000000000-0=2500 1700000000000-7=120      while it lives
    upto 1700000000000-3 1700000000000-9 1700000000000-0=2500 ...  once others have found it silent

`first`: slots start jobs in the order of delivery, so only so many of the first entries pending
under its name have been started: one for each slot, and behind those one for each ack that may not
have been written yet. `upto`: the last entry of either kind, written down before others claim some
of them. Behind it the entries that ran at the last renewal, and for how many ms then.

A consumer without a record (of an older version, of another program) may have started all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_ID = rb"\d{1,20}-\d{1,20}"
_FIRST, _UPTO = rb"first (\d{1,10})\+(\d{1,10})", rb"upto (%b) (%b)" % (_ID, _ID)
_RECORD = re.compile(rb"(?:%b|%b)((?: %b=\d{1,16})*)" % (_FIRST, _UPTO, _ID))
_RUN = re.compile(rb"(%b)=(\d+)" % _ID)

UPTO = b"upto "


class Upto(NamedTuple):
    """The last entry that has been started if all acks were written, and if they were not."""

    likely: bytes
    possible: bytes


class Started(NamedTuple):
    """How many of the first: as many as there are `slots`, and as `acks` may be unwritten; else
    `upto` which entries."""

    slots: int
    acks: int
    upto: Upto | None
    ran_ms: Mapping[bytes, int]

    @property
    def runs(self) -> bytes:
        """The part of the record that tells what ran, and for how long."""
        return _runs(self.ran_ms.items())


def pack_started(slots: int, acks: int, ran_ms: Iterable[tuple[bytes, int]]) -> bytes:
    return b"first %d+%d%b" % (slots, acks, _runs(ran_ms))


def unpack_started(record: bytes) -> Started | None:
    """None for what we would not have written."""
    match = _RECORD.fullmatch(record)
    if match is None:
        return None
    slots, acks, likely, possible, runs = match.groups()
    ran_ms = {entry_id: int(ms) for entry_id, ms in _RUN.findall(runs)}
    upto = None if likely is None else Upto(likely, possible)
    return Started(int(slots or 0), int(acks or 0), upto, ran_ms)


def _runs(ran_ms: Iterable[tuple[bytes, int]]) -> bytes:
    return b"".join([b" %b=%d" % run for run in ran_ms])
