"""What one task reads. It travels from the driver to an executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Part(InputPartition):
    """Of a stream: the entries of `(after, upto]`. `expect`: so many, or some were lost.
    Of other views: all of the queue."""

    queue: str
    after: str = ""
    upto: str = ""
    expect: int | None = None


@dataclass(frozen=True)
class Picked(InputPartition):
    """Of a stream: these entries, as far as they are there."""

    queue: str
    ids: tuple[str, ...]


class Bound(NamedTuple):
    """A place in a sorted set, as lua/spark_delayed.lua takes it: `=` and a member, or nothing for
    the place behind all of a score."""

    score: bytes
    member: bytes = b""


@dataclass(frozen=True)
class Members(InputPartition):
    """Of a sorted set: the members of `(after, upto]`."""

    queue: str
    after: Bound | None
    upto: Bound
