"""Every option of format("chasqui"): what it takes, what it refuses, and in which words."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import CaseInsensitiveDict

from chasquimq.config import MAX_MS
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.spark.options import (
    SINK,
    SOURCE,
    SinkOptions,
    SourceOptions,
    sink_options,
    source_options,
)
from chasquimq.spark.place import Place
from chasquimq.spark.said import field_of, name_of
from chasquimq.spark.secret import Where

NOON = 1_794_830_400_000  # 2026-11-16T12:00:00Z

SAID = [  # (option, text, field, value)
    ("view", "DLQ", "view", "dlq"),
    ("group", "nightly", "group", "nightly"),
    ("startingOffsets", "latest", "starting_offsets", "latest"),
    ("startingOffsets", " Earliest ", "starting_offsets", "earliest"),
    ("startingOffsets", '{"mail": "17-3"}', "starting_offsets", {"mail": Place(17, 3)}),
    ("startingOffsets", '{"mail": "17"}', "starting_offsets", {"mail": Place(17, 0)}),
    ("startingOffsets", "{}", "starting_offsets", {}),
    ("endingOffsets", "LATEST", "ending_offsets", "latest"),
    ("endingOffsets", '{"mail": "17-3"}', "ending_offsets", {"mail": Place(17, 3)}),
    ("startingTimestamp", str(NOON), "starting_timestamp", NOON),
    ("startingTimestamp", "2026-11-16T12:00:00Z", "starting_timestamp", NOON),
    ("startingTimestamp", "2026-11-16 12:00", "starting_timestamp", NOON),
    ("startingTimestamp", "2026-11-16T13:00:00.001+01:00", "starting_timestamp", NOON + 1),
    ("endingTimestamp", "2026-11-16", "ending_timestamp", NOON - 12 * 3_600_000),
    ("endingTimestamp", "0", "ending_timestamp", 0),
    ("maxOffsetsPerTrigger", "10000", "max_offsets_per_trigger", 10_000),
    ("minPartitions", " 16 ", "min_partitions", 16),
    ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
    ("payloadFormat", "Binary", "payload_format", "binary"),
    ("mode", "failFast", "mode", "FAILFAST"),
    ("fetchSize", "1", "fetch_size", 1),
    ("fetchSize", "100000", "fetch_size", 100_000),
    ("pushdown", "true", "pushdown", True),
]
WRITTEN = [
    ("commitMode", "Staged", "commit_mode", "staged"),
    ("commitMode", "direct", "commit_mode", "direct"),
    ("idColumn", "order id", "id_column", "order id"),
    ("runId", "nightly-2026.11_16", "run_id", "nightly-2026.11_16"),
    ("runId", "r" * 200, "run_id", "r" * 200),
    ("markerTtlMs", "1000", "marker_ttl_ms", 1_000),
    ("payloadFormat", "JSON", "payload_format", "json"),
    ("maxPayloadBytes", "1", "max_payload_bytes", 1),
    ("maxDelayMs", "0", "max_delay_ms", 0),
    ("maxStreamLen", "5", "max_stream_len", 5),
    ("eventsMaxStreamLen", "0", "events_max_stream_len", 0),
    ("onFull", "Fail", "on_full", "fail"),
    ("waitTimeoutMs", "0", "wait_timeout_ms", 0),
    ("chunkRows", "1000", "chunk_rows", 1_000),
    ("chunkBytes", "1", "chunk_bytes", 1),
    ("rowsPerSecond", "5", "rows_per_second", 5.0),
    ("rowsPerSecond", " .5 ", "rows_per_second", 0.5),
    ("rowsPerSecond", "2.5e3", "rows_per_second", 2_500.0),
]
REFUSED = [  # (option, text, what the message says)
    ("view", "job", "view must be one of jobs, pending, .*; got 'job'"),
    ("view", "", "view must not be empty"),
    ("group", " ", "group must not be empty"),
    ("startingOffsets", "first", r'startingOffsets is earliest, latest or \{"queue": "<entry id>"'),
    ("startingOffsets", '{"mail": 17}', "startingOffsets is earliest"),
    ("startingOffsets", '["mail"]', "startingOffsets is earliest"),
    ("startingOffsets", '{"mail": {"0": 17}}', "startingOffsets is earliest"),
    ("startingOffsets", '{"mail": "1", "mail": "2"}', "startingOffsets is earliest"),
    ("startingOffsets", "[" * 100_000, "startingOffsets is earliest"),
    ("startingOffsets", '{"mail": "soon"}', "startingOffsets: 'soon' is no entry id; it looks"),
    ("startingOffsets", '{"mial": "17-0"}', "offsets are given for 'mial', which is not read"),
    ("endingOffsets", '{"mial": "17-0"}', "offsets are given for 'mial', which is not read"),
    ("endingOffsets", "earliest", "endingOffsets=earliest would read nothing"),
    ("startingTimestamp", "yesterday", "startingTimestamp is epoch milliseconds or like 2026"),
    ("startingTimestamp", "-1", "startingTimestamp is epoch milliseconds"),
    ("startingTimestamp", "1969-12-31", "startingTimestamp must be from 0"),
    ("endingTimestamp", str(MAX_MS + 1), "endingTimestamp must be from 0"),
    ("endingTimestamp", "٣", "endingTimestamp is epoch milliseconds"),
    ("maxOffsetsPerTrigger", "0", "maxOffsetsPerTrigger must be at least 1"),
    ("maxOffsetsPerTrigger", "many", "maxOffsetsPerTrigger is a whole number, got 'many'"),
    ("minPartitions", "-3", "minPartitions must be at least 1"),
    ("minPartitions", "1.5", "minPartitions is a whole number"),
    ("minPartitions", "1_000", "minPartitions is a whole number"),
    ("minPartitions", "9" * 5_000, "minPartitions is a whole number"),
    ("failOnDataLoss", "yes", "failOnDataLoss is true or false, got 'yes'"),
    ("payloadFormat", "avro", "payloadFormat must be one of json, struct, binary, variant"),
    ("payloadFormat", "struct", "payloadFormat=struct and payloadSchema belong together"),
    ("payloadSchema", " ", "payloadSchema must not be empty"),
    ("mode", "IGNORE", "mode must be one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
    ("fetchSize", "0", "fetchSize must be from 1 to 100000"),
    ("fetchSize", "100001", "fetchSize must be from 1 to 100000"),
    ("pushdown", "", "pushdown is true or false"),
]
NOT_WRITTEN = [
    ("commitMode", "twophase", "commitMode must be one of direct, staged"),
    ("idColumn", "", "idColumn must not be empty"),
    ("runId", "a:b", "runId 'a:b' must be 1 to 200 of the characters"),
    ("runId", "r" * 201, "runId .* must be 1 to 200"),
    ("runId", "ü", "runId 'ü' must be 1 to 200"),
    ("runId", "a\n", "runId .* must be 1 to 200"),
    ("runId", "id", "runId 'id' names a key of the sink's own"),
    ("runId", "queries", "runId 'queries' names a key"),
    ("markerTtlMs", "999", "markerTtlMs must be from 1000"),
    ("payloadFormat", "struct", "payloadFormat must be one of value, json, binary"),
    ("maxPayloadBytes", "0", "maxPayloadBytes must be at least 1"),
    ("maxStreamLen", "0", "maxStreamLen must be at least 1"),
    ("onFull", "trim", "onFull must be one of wait, fail; got 'trim'"),
    ("waitTimeoutMs", "-1", "waitTimeoutMs must be from 0"),
    ("chunkRows", "1001", "chunkRows must be from 1 to 1000"),
    ("chunkBytes", "0", "chunkBytes must be from 1 to 16777216"),
    ("rowsPerSecond", "0", "rowsPerSecond must be from 0.001 to 1e9, got 0; leave it out"),
    ("rowsPerSecond", "-5", "rowsPerSecond must be from 0.001"),
    ("rowsPerSecond", "nan", "rowsPerSecond is a number, got 'nan'"),
    ("rowsPerSecond", "5/s", "rowsPerSecond is a number, got '5/s'"),
    ("maxDelayMs", "-1", "maxDelayMs must be from 0 to"),
    ("eventsMaxStreamLen", "-1", "eventsMaxStreamLen must be at least 0"),
]


def read(**given: str) -> SourceOptions:
    return source_options(CaseInsensitiveDict({"queue": "mail", **given}))


def write(**given: str) -> SinkOptions:
    return sink_options(CaseInsensitiveDict({"queue": "mail", **given}))


@pytest.mark.parametrize(("option", "text", "field", "value"), SAID)
def test_a_source_option_is_read(option: str, text: str, field: str, value: Any) -> None:
    assert getattr(read(**{option: text}), field) == value
    assert getattr(source_options({"queue": "mail", option.upper(): text}), field) == value


@pytest.mark.parametrize(("option", "text", "field", "value"), WRITTEN)
def test_a_sink_option_is_read(option: str, text: str, field: str, value: Any) -> None:
    assert getattr(write(**{option: text}), field) == value


def test_every_option_is_tried_here() -> None:
    assert {row[0] for row in SAID} | {"payloadSchema"} == {row[0] for row in REFUSED} == {*SOURCE}
    assert {row[0] for row in WRITTEN} == {row[0] for row in NOT_WRITTEN} == {*SINK}


def test_every_option_has_its_field_and_its_name_back() -> None:
    assert {field_of(name) for name in SOURCE} < set(SourceOptions.__struct_fields__)
    assert {field_of(name) for name in SINK} < set(SinkOptions.__struct_fields__)
    assert all(name_of(field_of(name)) == name for name in [*SOURCE, *SINK])


@pytest.mark.parametrize(("option", "text", "words"), REFUSED)
def test_a_source_option_that_makes_no_sense(option: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        read(**{option: text})
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("option", "text", "words"), NOT_WRITTEN)
def test_a_sink_option_that_makes_no_sense(option: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        write(**{option: text})


def test_a_schema_of_payloads_means_structs() -> None:
    assert read(payloadSchema="a INT").payload_format == "struct"
    assert read(payloadSchema="a INT", payloadFormat="STRUCT").payload_schema == "a INT"
    with pytest.raises(ConfigError, match="belong together"):
        read(payloadSchema="a INT", payloadFormat="json")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest", "startingTimestamp": "5"}, "give startingOffsets or start"),
        ({"startingOffsets": '{"mail":"5"}', "startingTimestamp": "5"}, "give startingOffsets or"),
        ({"endingOffsets": '{"mail":"5"}', "endingTimestamp": "5"}, "give endingOffsets or ending"),
        ({"startingTimestamp": "6", "endingTimestamp": "5"}, "startingTimestamp is later than end"),
        ({"view": "results", "startingTimestamp": "5"}, "startingTimestamp is for the views dlq,"),
        ({"view": "delayed", "endingOffsets": "latest"}, "endingOffsets is for the views dlq, ev"),
    ],
)
def test_options_that_contradict_each_other(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(**given)


def test_options_that_do_not() -> None:
    both = read(startingTimestamp="5", endingTimestamp="5", startingOffsets="earliest")
    assert (both.starting_timestamp, both.ending_timestamp) == (5, 5)
    assert read(startingOffsets='{"mail":"5"}', endingTimestamp="9").ending_timestamp == 9


def test_staging_and_ids_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="idColumn needs no staging"):
        write(commitMode="staged", idColumn="id")


@pytest.mark.parametrize(
    ("text", "queues"),
    [
        ("mail", ("mail",)),
        (" mail ", ("mail",)),
        ("mail, orders ,mail", ("mail", "orders")),
        ("Mail,mail", ("Mail", "mail")),
        ("mail/eu", ("mail/eu",)),
    ],
)
def test_queues(text: str, queues: tuple[str, ...]) -> None:
    assert source_options({"queue": text}).queues == queues
    assert source_options({"path": text}).queues == queues
    assert source_options({"paths": json.dumps(text.split(","))}).queues == queues


@pytest.mark.parametrize("text", ["mail,", ",mail", "mail,,orders", "mail, ", "ma{il", "ma\nil"])
def test_what_is_no_list_of_queues(text: str) -> None:
    with pytest.raises(ConfigError, match="queue name"):
        source_options({"queue": text})


def test_the_queue_is_named_once() -> None:
    with pytest.raises(ConfigError, match=r"which queue\? Give it by"):
        source_options({"view": "jobs"})
    with pytest.raises(ConfigError, match="named twice"):
        source_options({"queue": "mail", "path": "mail"})
    with pytest.raises(ConfigError, match="paths is a JSON list of texts"):
        source_options({"paths": "[1]"})
    with pytest.raises(ConfigError, match="one queue is written at a time"):
        sink_options({"queue": "mail,orders"})
    with pytest.raises(ConfigError, match="queue must not be empty"):
        sink_options({"queue": ""})
    assert sink_options({"path": " mail "}).queue == "mail"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("fetchsize_", "did you mean 'fetchSize'?"),
        ("startingOffset", "did you mean 'startingOffsets'?"),
        ("MAXOFFSETPERTRIGGER", "did you mean 'maxOffsetsPerTrigger'?"),
        ("queues", "did you mean 'queue'?"),
        ("kafka.bootstrap.servers", "known: endingOffsets, endingTimestamp, failOnDataLoss, "),
        ("password", "the server is named by url, and with a password by urlEnv or secretFile"),
        ("host", "the server is named by url"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        source_options({"queue": "mail", name: "hunter2"})
    assert f"format('chasqui') has no option {name!r}; {hint}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_source_and_sink_have_options_of_their_own() -> None:
    with pytest.raises(ArgumentError, match="has no option 'runid'"):
        read(runId="a")
    with pytest.raises(ArgumentError, match="has no option 'view'"):
        write(view="jobs")


def test_what_spark_puts_among_the_options_of_a_query_is_left_alone() -> None:
    assert write(checkpointLocation="/a", queryName="q") == write()


def test_options_are_frozen_and_travel() -> None:
    options = read(startingOffsets='{"mail":"5-1"}', urlEnv="REDIS_URL")
    with pytest.raises(AttributeError):
        options.view = "dlq"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(options)) == options
    assert pickle.loads(pickle.dumps(write(runId="a"))) == write(runId="a")
    assert msgspec.structs.replace(options, fetch_size=7).where == Where(url_env="REDIS_URL")


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=3))
def test_whatever_is_said_is_understood_or_refused(given: dict[str, str]) -> None:
    for reading in (source_options, sink_options):
        try:
            reading({"queue": "mail"} | given)
        except ConfigError:
            pass


@given(st.sampled_from([*SOURCE]), st.text(max_size=40))
def test_whatever_an_option_says_is_understood_or_refused(option: str, text: str) -> None:
    try:
        read(**{option: text})
    except ConfigError:
        pass
