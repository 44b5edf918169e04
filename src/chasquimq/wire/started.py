"""What a consumer had started when it last renewed its leases: its record in the hash `started`.

    first 164 1700000000000-0=2500 1700000000000-7=120      while it lives
    upto 1700000000000-9 1700000000000-0=2500 ...           once others have found it silent

`first`: at most this many of the first entries pending under its name have been started, because
slots start jobs in the order of delivery. `upto`: the last of those, written down before others
claim some of them. Behind it the entries that ran at the last renewal, and for how many ms then.

A consumer without a record (of an older version, of another program) may have started all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_ID = rb"\d{1,20}-\d{1,20}"
_RECORD = re.compile(rb"(?:first (\d{1,10})|upto (%b))((?: %b=\d{1,16})*)" % (_ID, _ID))
_RUN = re.compile(rb"(%b)=(\d+)" % _ID)

UPTO = b"upto "


class Started(NamedTuple):
    """`first`: how many of the first; else `upto` which entry."""

    first: int
    upto: bytes | None
    ran_ms: Mapping[bytes, int]

    @property
    def runs(self) -> bytes:
        """The part of the record that tells what ran, and for how long."""
        return _runs(self.ran_ms.items())


def pack_started(first: int, ran_ms: Iterable[tuple[bytes, int]]) -> bytes:
    return b"first %d%b" % (first, _runs(ran_ms))


def unpack_started(record: bytes) -> Started | None:
    """None for what we would not have written."""
    match = _RECORD.fullmatch(record)
    if match is None:
        return None
    first, upto, runs = match.groups()
    ran_ms = {entry_id: int(ms) for entry_id, ms in _RUN.findall(runs)}
    return Started(int(first or 0), upto, ran_ms)


def _runs(ran_ms: Iterable[tuple[bytes, int]]) -> bytes:
    return b"".join([b" %b=%d" % run for run in ran_ms])
