"""`format("chasqui")`: who reads and who writes, chosen by the options."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError
from chasquimq.spark.options import sink_options, source_options
from chasquimq.spark.read.batch import BatchReader
from chasquimq.spark.read.stream import EventReader
from chasquimq.spark.schema import check_schema, schema_of
from chasquimq.spark.write.batch import BatchWriter


class ChasquiSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "chasqui"

    def schema(self) -> str:
        return schema_of(source_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options)
        check_schema(schema, options)
        return BatchReader(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self.options)
        check_schema(schema, options)
        if options.view != "events":
            raise ConfigError(f"view {options.view} cannot be streamed; events and dlq can")
        return EventReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError(
                "mode('overwrite') would purge a queue of jobs that were never run, so it is "
                "refused; use mode('append')"
            )
        return BatchWriter(schema, sink_options(self.options))
