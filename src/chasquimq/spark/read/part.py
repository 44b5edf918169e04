"""What one task reads."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class Part(InputPartition):
    """Of a stream: the entries of `(after, upto]`. `expect`: so many, or some were lost."""

    queue: str
    after: str = ""
    upto: str = ""
    expect: int | None = None
