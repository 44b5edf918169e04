"""`spark.read`: a queue as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError
from chasquimq.spark.client import Client, Clients
from chasquimq.spark.decode import decoder
from chasquimq.spark.options import SourceOptions
from chasquimq.spark.read import plan, scan
from chasquimq.spark.read.collector import seldom
from chasquimq.spark.read.filters import Wanted, narrow
from chasquimq.spark.read.part import Members, Picked
from chasquimq.spark.read.result import results
from chasquimq.wire import Keys


class BatchReader(DataSourceReader):
    """Made on the driver, pickled, and used on executors: it holds no connection."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        if options.starting_offsets == "latest":
            raise ConfigError(
                "startingOffsets=latest is for spark.readStream: spark.read would find nothing"
            )
        self._schema = schema
        self._options = options
        self._wanted = Wanted(options.queues)

    def partitions(self) -> list[InputPartition]:
        with Clients(self._options.where.address(), plan.SCRIPTS) as clients:
            parts = plan.plan(clients, self._options, self._wanted)
        # Without a partition Spark would call read() with one that nobody made.
        return parts or [Picked(self._options.queues[0], ())]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        decode = decoder(partition.queue, self._schema, self._options)
        address = self._options.where.address_of(partition.queue)
        with seldom(), Client(address, scan.SCRIPTS) as client:
            for page in pages(client, partition, self._options):
                yield decode.batch(page)


class FilteringReader(BatchReader):
    """Lets Redis answer what it can. Spark refuses a reader that can do this, unless
    `spark.sql.python.filterPushdown.enabled` is true: so there are two."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._wanted, left = narrow(self._wanted, self._options.view, filters)
        return left


def pages(client: Client, part: Any, options: SourceOptions) -> Iterator[scan.Page]:
    """The rows of a part, as Redis gives them."""
    view, most, keys = options.view, options.fetch_size, Keys(part.queue)
    if isinstance(part, Picked) and not part.ids:
        return iter(())
    if view == "results":
        return results(client, keys, most)
    if view == "repeatables":
        return scan.specs(client, keys, most)
    key = plan.key_of(view, part.queue)
    if isinstance(part, Picked):
        return scan.picked(client, key, part.ids, most)
    if isinstance(part, Members):
        return scan.delayed(client, key, part.after, part.upto, most)
    if view == "pending":
        return scan.pending(client, key, options.group, part.after, part.upto, most)
    return scan.entries(client, key, part.after, part.upto, most)
