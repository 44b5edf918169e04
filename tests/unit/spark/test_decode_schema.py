"""A caller's own schema: which columns, and in which form."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    VariantType,
)

from chasquimq.errors import ConfigError
from chasquimq.spark.options import CORRUPT, SourceOptions, View
from chasquimq.spark.schema import CORRUPT_TYPE, check_schema, schema_of
from chasquimq.spark.secret import Where
from tests.unit.spark.stored import FORMS, VIEWS, schema_of_view


def options(view: View = "jobs", **said: Any) -> SourceOptions:
    return SourceOptions(where=Where(), queues=("q",), view=view, **said)


def check(*fields: tuple[str, DataType], null: bool = True, **said: Any) -> None:
    wanted = StructType([StructField(name, kind, null) for name, kind in fields])
    check_schema(wanted, options(**said))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED", "FAILFAST"])
def test_a_view_takes_its_own_columns(view: View, form: str, mode: Any) -> None:
    check_schema(schema_of_view(view, FORMS[form], mode), options(view, mode=mode))


@pytest.mark.parametrize("view", VIEWS)
def test_all_columns_as_ddl(view: View) -> None:
    said = schema_of(options(view, payload_format="struct", payload_schema="`a b` BIGINT, c INT"))
    assert said.startswith("`queue` string, ")
    assert ("STRUCT<`a b` BIGINT, c INT>" in said) == (view not in ("events", "repeatables"))
    assert said.endswith("`_corrupt_record` struct<reason:string,record:binary>")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ([], "names no column; view jobs has queue, entry_id, "),
        ([("nmae", StringType())], "view jobs has no column 'nmae'.*'name'"),
        ([("job_id", StringType())], "view jobs has no column 'job_id'"),
        ([("name", StringType()), ("name", StringType())], "names the column name twice"),
        ([("attempt", StringType())], "column attempt of view jobs is bigint, not string"),
        ([("created_at", TimestampNTZType())], "is timestamp, not timestamp_ntz"),
        ([("payload", LongType())], "is string, binary, variant or a struct, not bigint"),
        ([("payload", ArrayType(StringType()))], "is string, binary, variant or a struct"),
        ([("payload", StructType([StructField("a", NullType())]))], r"column payload: \$\.a is"),
        ([(CORRUPT, StringType())], "column _corrupt_record of view jobs is struct<"),
    ],
)
def test_what_a_view_has_not_is_refused_when_it_is_planned(fields: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        check(*fields)


def test_a_column_is_null_where_a_row_cannot_be_read() -> None:
    with pytest.raises(ConfigError, match="column id cannot be NOT NULL"):
        check(("id", StringType()), null=False)


@pytest.mark.parametrize("mode", ["DROPMALFORMED", "FAILFAST"])
def test_only_permissive_has_corrupt_records(mode: Any) -> None:
    check((CORRUPT, CORRUPT_TYPE))
    with pytest.raises(ConfigError, match=f"no column '{CORRUPT}'"):
        check((CORRUPT, CORRUPT_TYPE), mode=mode)


@pytest.mark.parametrize("kind", [BinaryType(), VariantType(), StringType("UTF8_LCASE")])
def test_a_schema_says_the_form_whatever_the_options_say(kind: DataType) -> None:
    check(("payload", kind), payload_format="json")
