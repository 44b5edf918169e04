"""Which dead jobs a DataFrame names: fixed once, before anything is done to any of them.

Bringing jobs back changes what the DataFrame is made of. If it were computed again, by a task that
is run again or by a second action, it would not show what was done, and show others that died
meanwhile. So the names, and nothing else, come to the driver: some 300 bytes for each job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.wire import check_stored_queue_name

PAGE = 100  # jobs in one script call, at the most: the server serves nobody meanwhile
NAMES = ("queue", "entry_id")
PAGES = pa.schema(
    [("bit", pa.int64()), ("queue", pa.string()), ("entry_ids", pa.list_(pa.string()))]
)
_ID = r"^(?P<ms>[0-9]{1,20})(?:-(?P<seq>[0-9]{1,20}))?$"


class Choice(NamedTuple):
    """`queue` and `entry_id`, each pair once; by queue, the oldest first."""

    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def queues(self) -> list[str]:
        return list(dict.fromkeys(pc.unique(self.table["queue"]).to_pylist()))

    def pages(self) -> pa.Table:
        """A row for each page: the bit of its first job, the queue, the ids."""
        bits, queues, ids = [], [], []
        for bit, queue, some in self._pages():
            bits.append(bit)
            queues.append(queue)
            ids.append(some)
        return pa.table([bits, queues, ids], schema=PAGES)

    def _pages(self) -> Iterator[tuple[int, str, list[str]]]:
        """Bits are counted in each queue, which has notes of its own."""
        for queue in self.queues:
            ids = self.table.filter(pc.equal(self.table["queue"], queue))["entry_id"]
            for first in range(0, len(ids), PAGE):
                yield first, queue, ids[first : first + PAGE].to_pylist()


def choose(dead: DataFrame) -> Choice:
    """What a DataFrame with the columns `queue` and `entry_id` names."""
    for name in NAMES:
        if name not in dead.columns:
            hint = nearest(name, dead.columns) if dead.columns else "it has none"
            raise ConfigError(
                f"which dead jobs? The DataFrame has no column {name}, as view dlq has; {hint}"
            )
    found = dead.select(*(dead[name].cast("string") for name in NAMES)).toArrow()
    table = pa.table([found.column(0), found.column(1)], names=NAMES).group_by([*NAMES])
    return Choice(_in_order(table.aggregate([])))


def pages_frame(spark: SparkSession, choice: Choice, tasks: int) -> DataFrame:
    """Pages as rows, for so many tasks. They are made of what the driver has, so a task that is run
    again gets the same."""
    return spark.createDataFrame(choice.pages()).repartition(tasks)


def _in_order(table: pa.Table) -> pa.Table:
    """Ids as Redis writes them, and in its order: as text `5-10` comes before `5-9`."""
    for queue in pc.unique(table["queue"]).to_pylist():
        check_stored_queue_name(queue)
    parts = pc.extract_regex(table["entry_id"], _ID).combine_chunks()
    if parts.null_count:
        wrong = table["entry_id"].filter(pc.is_null(parts))[0].as_py()
        raise ConfigError(f"{wrong!r:.80} is no entry id; it looks like 1700000000000-0")
    digits = [pc.struct_field(parts, part) for part in ("ms", "seq")]
    try:
        ms, seq = (pc.cast(pc.if_else(pc.equal(one, ""), "0", one), pa.uint64()) for one in digits)
    except pa.ArrowInvalid:
        raise ConfigError("an entry_id is none: its numbers have more than 64 bits") from None
    ids = pc.binary_join_element_wise(ms.cast(pa.string()), seq.cast(pa.string()), "-")
    named = pa.table({"queue": table["queue"], "entry_id": ids, "ms": ms, "seq": seq})
    order = [(name, "ascending") for name in ("queue", "ms", "seq")]
    return named.sort_by(order).group_by([*NAMES], use_threads=False).aggregate([])
