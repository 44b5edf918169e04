"""Rows from where they lie: files, tables, queries and databases, read as Spark reads them.

Files are read strictly: a row that does not fit ends the read, and is named. Options are those of
Spark's readers; Spark itself does not hear a misspelt one, so here it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from chasquimq.address import Secret
from chasquimq.config import Options, nearest
from chasquimq.errors import ArgumentError, ConfigError, MalformedError
from chasquimq.text import discreet

Form = Literal["parquet", "csv", "json", "jsonl", "orc", "text", "table", "query"]

VIEW = "source"  # what a query calls the rows of files that are given beside it
STRICT = {"mode": "FAILFAST"}
CORRUPT = "__corrupt"  # a column that is in nobody's files
_CORRUPT = {"columnNameOfCorruptRecord": CORRUPT}
DEFAULTS: dict[str, dict[str, str]] = {
    "csv": {"header": "true", "inferSchema": "true", **STRICT},
    "json": STRICT,
    "jsonl": STRICT,
}
_ENDINGS: dict[str, Form] = {
    "parquet": "parquet",
    "pq": "parquet",
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "orc": "orc",
    "txt": "text",
    "text": "text",
    "log": "text",
}
_PACKED = r"(?:\.(?:gz|gzip|bz2|zst|lz4|snappy|deflate))?"
_FILES = "pathGlobFilter modifiedBefore modifiedAfter recursiveFileLookup ignoreMissingFiles "
_TEXTS = (
    "mode encoding lineSep multiLine samplingRatio locale timeZone dateFormat timestampFormat "
    "timestampNTZFormat columnNameOfCorruptRecord "
)
_OF_JSON = _TEXTS + (
    "primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames allowSingleQuotes "
    "allowNumericLeadingZeros allowBackslashEscapingAnyCharacter allowUnquotedControlChars "
    "allowNonNumericNumbers dropFieldIfAllNull"
)
_OF_JDBC = (
    "user driver partitionColumn lowerBound upperBound numPartitions fetchsize queryTimeout "
    "sessionInitStatement customSchema prepareQuery pushDownPredicate pushDownLimit pushDownOffset "
    "pushDownAggregate pushDownTableSample preferTimestampNTZ refreshKrb5Config keytab principal "
    "connectionProvider"
)
KNOWN: dict[str, tuple[str, ...]] = {
    form: tuple((_FILES + words).split())
    for form, words in {
        "parquet": "mergeSchema datetimeRebaseMode int96RebaseMode",
        "orc": "mergeSchema",
        "text": "wholetext lineSep encoding",
        "json": _OF_JSON,
        "jsonl": _OF_JSON,
        "csv": _TEXTS
        + "sep delimiter quote escape comment header inferSchema preferDate enforceSchema "
        "ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue emptyValue nanValue "
        "positiveInf negativeInf maxColumns maxCharsPerColumn unescapedQuoteHandling "
        "charToEscapeQuoteEscaping",
    }.items()
} | {
    "table": (),
    "query": (),
    "jdbc": tuple(_OF_JDBC.split()),
}


class Source(Options, frozen=True):
    """Files at `place`, or a `table`, or a `query`; the last two also of a database, by `jdbc`."""

    place: str | None = None
    form: Form | None = None  # None: as the ending of `place` says
    schema: str | None = None  # as DDL
    table: str | None = None
    query: str | None = None
    jdbc: str | None = None
    password: Secret | None = None  # of the database
    options: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        if self.form is not None and self.form not in get_args(Form):
            raise ConfigError(
                f"there is no format {self.form!r:.80}; {nearest(self.form, get_args(Form))}"
            )
        if self.place is not None and self.table is not None:
            raise ConfigError(f"give files ({self.place:.80}) or a table, not both")
        if self.table is not None and self.query is not None:
            raise ConfigError("give a table or a query, not both")
        if self.place is None and self.table is None and self.query is None:
            raise ConfigError("rows of what? Name files, a table or a query")
        if self.jdbc is None:
            self._check_options(self.kind)
            return
        if self.place is not None:
            raise ConfigError("a database has tables and queries, not files; leave them out")
        if discreet(self.jdbc) != self.jdbc:
            raise ConfigError(
                "the address of the database holds a password, which everybody on this machine "
                "could read; put it into a file or an environment variable"
            )
        self._check_options("jdbc")

    @property
    def kind(self) -> Form:
        """Of what the rows are read from first."""
        if self.place is not None:
            return self.form or guess(self.place)
        return "table" if self.table is not None else "query"

    def _check_options(self, kind: str) -> None:
        known = {name.lower(): name for name in KNOWN[kind]}
        for name in self.options:
            if re.search("password|secret|token|credential", name, re.IGNORECASE):
                raise ConfigError(
                    f"{name:.80} is no option to give here: what is on a command line everybody "
                    "on this machine can read; put it into a file or an environment variable"
                )
            if name.lower() not in known:
                near = nearest(name, [*known.values()]) if known else "it has none"
                raise ArgumentError(f"a source of kind {kind} has no option {name!r:.80}; {near}")


def guess(place: str) -> Form:
    """The format, by the ending of a path, a folder's or a pattern's."""
    found = re.search(rf"\.(\w+){_PACKED}/*$", place)
    form = _ENDINGS.get(found[1].lower()) if found else None
    if form is None:
        raise ConfigError(
            f"the ending of {place!r:.200} does not tell its format; say which of "
            f"{', '.join(get_args(Form))} it is"
        )
    return form


def load(spark: SparkSession, source: Source) -> DataFrame:
    if source.jdbc is not None:
        return _database(spark, source)
    if source.table is not None:
        return spark.table(source.table)
    if source.place is None:
        assert source.query is not None
        return spark.sql(source.query)
    rows = _named(spark, source, source.place)
    if source.query is None:
        return rows
    rows.createOrReplaceTempView(VIEW)
    return spark.sql(source.query)


def is_counted_quickly(source: Source) -> bool:
    """Do the files themselves know how many rows they have?"""
    return source.place is not None and source.query is None and source.kind in ("parquet", "orc")


def _named(spark: SparkSession, source: Source, place: str) -> DataFrame:
    form = source.kind
    if form == "table":
        return spark.table(place)
    if form == "query":
        return spark.sql(place)
    options = {**DEFAULTS.get(form, {}), **source.options}
    if form == "csv" and re.search(rf"\.tsv{_PACKED}/*$", place, re.IGNORECASE):
        options.setdefault("sep", "\t")
    if form in ("json", "jsonl"):
        return _json(spark, source, place, options)
    reader = spark.read.format(form).options(**options)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(place)


def _json(spark: SparkSession, source: Source, place: str, options: Mapping[str, str]) -> DataFrame:
    """Where types are found out first, Spark knows that a row is wrong, but not which one."""
    reader = spark.read.options(**options)
    if source.schema is not None or options["mode"].upper() != "FAILFAST":
        return (reader.schema(source.schema) if source.schema is not None else reader).json(place)
    lenient = spark.read.options(**{**options, "mode": "PERMISSIVE", **_CORRUPT})
    found = lenient.json(place).schema
    if CORRUPT not in found.names:
        return reader.schema(found).json(place)
    # Spark reads no rows for this column alone.
    rows = lenient.schema(f"`{CORRUPT}` STRING, `{CORRUPT}_too` STRING").json(place)
    row = rows.where(F.col(CORRUPT).isNotNull()).select("*", "_metadata.file_path").first()
    raise MalformedError(
        f"{row.file_path if row else place}: the row {row[CORRUPT] if row else ''!r:.120} is no "
        "JSON; mend it, or read on by the option mode=DROPMALFORMED (without such rows) or "
        "mode=PERMISSIVE. A file that is one document of many lines: multiLine=true"
    )


def _database(spark: SparkSession, source: Source) -> DataFrame:
    assert source.jdbc is not None
    what = {"dbtable": source.table} if source.table is not None else {"query": source.query}
    reader = spark.read.format("jdbc").options(url=source.jdbc, **what, **source.options)
    if source.password is not None:
        # Spark hides this one by itself, in plans and in its log of events.
        reader = reader.option("password", source.password.reveal())
    return reader.load()
