"""`format("chasqui")`: who reads and who writes, chosen by the options."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from chasquimq.errors import ConfigError
from chasquimq.spark.options import sink_options, source_options
from chasquimq.spark.read.batch import BatchReader, FilteringReader
from chasquimq.spark.read.stream import StreamReader
from chasquimq.spark.schema import check_schema, schema_of
from chasquimq.spark.write.batch import BatchWriter
from chasquimq.spark.write.stream import StreamWriter


class ChasquiSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "chasqui"

    def schema(self) -> str:
        return schema_of(source_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options)
        check_schema(schema, options)
        return (FilteringReader if options.pushdown else BatchReader)(schema, options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = source_options(self.options)
        check_schema(schema, options)
        return StreamReader(schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigError(
                "mode('overwrite') would purge a queue of jobs that were never run, so it is "
                "refused; use mode('append')"
            )
        return BatchWriter(schema, sink_options(self.options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise ConfigError(
                "outputMode('complete') would purge a queue of jobs that were never run with each "
                "batch, so it is refused; use outputMode('append')"
            )
        return StreamWriter(schema, sink_options(self.options))
