"""Which folders of a lake count. Pure.

A batch of the streaming query is one folder in each of its partitions, and so are many of them that
were put together; the name says which ones it holds:

    batch=<writer>.<number>             one of the query `writer`
    batch=<writer>.<first>-<last>       all of that partition from `first` to `last`

A folder comes into being whole, by a rename. One that is held by another is *superseded*: it is
left for those who are reading it, and is no part of the lake any more. So a lake is the same
before, while and after folders are put together, and whoever is killed in between leaves no harm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from chasquimq.errors import ConfigError

TABLES = ("events", "dlq")
_BATCH = re.compile(r"batch=([0-9a-f]{8})\.([0-9]{9,})(?:-([0-9]{9,}))?")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.IGNORECASE)
_OBJECT_STORES = (
    *("s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl"),
    *("oss", "obs", "cos", "cosn", "tos", "bos", "ks3", "swift", "oci", "dbfs"),
)
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def check_atomic(lake: str) -> None:
    """ConfigError for a place in an object store, where a folder does not move at once."""
    found = _SCHEME.match(lake)
    if found and found[1].lower() in _OBJECT_STORES:
        raise ConfigError(
            f"a lake cannot be in an object store ({found[1]}:): a rename is not atomic there, so "
            "rows would be lost when a query is stopped while it moves a folder; keep the lake on "
            "HDFS (hdfs://...) or on a disk that the driver and all executors share"
        )


class Folder(NamedTuple):
    """`partition` is `queue=<as Spark writes it>/date=<day>`."""

    partition: str
    writer: str
    first: int
    last: int

    @property
    def name(self) -> str:
        many = f"-{self.last:09d}" if self.last > self.first else ""
        return f"batch={self.writer}.{self.first:09d}{many}"

    @property
    def path(self) -> str:
        return f"{self.partition}/{self.name}"

    def holds(self, other: Folder) -> bool:
        same = (self.partition, self.writer) == (other.partition, other.writer)
        return same and self != other and self.first <= other.first and other.last <= self.last


def read_folder(partition: str, name: str) -> Folder | None:
    """None: it is none of ours, and no part of the lake."""
    found = _BATCH.fullmatch(name)
    if found is None:
        return None
    writer, first, last = found.groups()
    return Folder(partition, writer, int(first), int(last or first))


def read_date(partition: str) -> date | None:
    found = _DATE.fullmatch(partition.rpartition("/")[2])
    return date.fromisoformat(found[1]) if found else None


def live(folders: Iterable[Folder]) -> list[Folder]:
    """Those that count, in order."""
    found: list[Folder] = []
    # The widest of those that begin at the same place comes first, and holds those behind it.
    for one in sorted(folders, key=lambda one: (one.partition, one.writer, one.first, -one.last)):
        if not (found and found[-1].holds(one)):
            found.append(one)
    return found


def superseded(folders: Sequence[Folder]) -> dict[Folder, Folder]:
    """Those that do not, and by which."""
    counting = live(folders)
    return {
        old: next(new for new in counting if new.holds(old))
        for old in sorted(set(folders) - set(counting))
    }


def together(folders: Iterable[Folder], least: int) -> list[list[Folder]]:
    """What may be put into one folder: at least so many of one writer, in one partition."""
    groups: dict[tuple[str, str], list[Folder]] = {}
    for one in live(folders):
        groups.setdefault((one.partition, one.writer), []).append(one)
    return [group for group in groups.values() if len(group) >= max(2, least)]


def joined(group: Sequence[Folder]) -> Folder:
    return group[0]._replace(last=group[-1].last)
