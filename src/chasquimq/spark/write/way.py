"""The ways rows get into a queue, and which of them a write takes.

    direct    tasks write into the queue, chunk by chunk                         write/direct.py
    by id     the same, and each row is known by an id of its own                write/by_id.py
    staged    tasks write aside, the driver moves it all over at the end         write/staged.py

A way is made on the driver, pickled once, and used by every attempt of every task, so it holds no
connection. `write` runs on executors, `commit` and `abort` on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from chasquimq.spark.options import SinkOptions
from chasquimq.spark.write.run import Run


@dataclass
class Written(WriterCommitMessage):
    """What a task says of itself. No total is made of it: Redis has counted, and must agree."""

    partition: int
    attempt: int
    rows: int | None = None  # that it saw; None: the run was done, and it looked at none
    chunks: tuple[str, int] = ("", 0)  # by id: the field of the run that counts them, and how many


Messages = Sequence[WriterCommitMessage | None]  # None: that task failed


class Way(Protocol):
    def write(
        self, partition: int, attempt: int, batches: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage: ...

    def commit(self, messages: Messages) -> None: ...

    def abort(self, messages: Messages) -> None: ...


def way(schema: StructType, options: SinkOptions, run: Run, streaming: bool = False) -> Way:
    """What the options ask for. A stream's batch that is run again after its driver died may be cut
    into other partitions, which only rows with ids and staged rows can bear."""
    # Imported here, for each of them imports this module; and most writes need one.
    if options.id_column is not None:
        from chasquimq.spark.write.by_id import ById

        return ById(schema, options, run)
    if options.commit_mode == "staged" or (streaming and options.commit_mode is None):
        from chasquimq.spark.write.staged import Staged

        return Staged(schema, options, run)
    from chasquimq.spark.write.direct import Direct

    return Direct(schema, options, run)
