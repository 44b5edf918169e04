"""The golden vectors: bytes recorded from the reference, packed and unpacked by us.

Where we mean to differ, the vector's name stands in `DEVIATIONS` with the number of the
difference in the product page, and the test says what we do instead.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chasquimq import wire
from chasquimq.errors import ConfigError
from chasquimq.job import BackoffSpec, Envelope, RetryOverride
from chasquimq.repeat import MissedFiresPolicy, RepeatPattern, StoredSpec
from chasquimq.wire import Keys

RECORDED = json.loads((Path(__file__).parent / "vectors.json").read_text())
VECTORS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in RECORDED["vectors"]}

DEVIATIONS = {
    "dlq_decode_failed": 6,  # ours keeps the name, where there is one
    "event_waiting_1": 10,  # ours carries the name
    "event_waiting_2": 10,
    "key_for_queue_'{tag}'": 15,  # braces are refused
}


def names(*prefixes: str) -> list[str]:
    return [name for name in VECTORS if name.startswith(prefixes)]


ENTRIES = [*names("imm_"), "dlq_replay_reencoded"]
MEMBERS = [name for name in VECTORS if VECTORS[name]["type"] == "zset-member"]
SPECS = [name for name in VECTORS if VECTORS[name]["type"] == "hash"]
DEAD = [name for name in names("dlq_") if name not in ENTRIES]
EVENTS = names("event_")
KEYS = names("key_for_queue_")
STRINGS = [name for name in VECTORS if VECTORS[name]["type"] == "string"]


def test_every_vector_is_accounted_for() -> None:
    covered = [*ENTRIES, *MEMBERS, *SPECS, *DEAD, *EVENTS, *KEYS, *STRINGS]
    assert sorted(covered) == sorted(VECTORS)
    assert len(RECORDED["vectors"]) == len(VECTORS) == 119
    assert set(DEVIATIONS) <= set(VECTORS)


def flat(vector: dict[str, Any]) -> list[bytes]:
    """A recorded entry as Redis would hand it out: field, value, field, value."""
    return [
        part
        for field in vector["fields"]
        if "v_hex" in field
        for part in (field["f"].encode(), bytes.fromhex(field["v_hex"]))
    ]


CUT_SHORT = {  # data whose repr is too long for the recording
    "vec-str255": "x" * 255,
    "vec-str256": "x" * 256,
    "vec-bytes256": bytes(256),
}


def user_data(decoded: dict[str, Any]) -> Any:
    text = decoded["user_data_repr"]
    if decoded["id"] in CUT_SHORT:
        return CUT_SHORT[decoded["id"]]
    return float(text) if text in ("inf", "nan") else ast.literal_eval(text)


def override(slots: list[Any] | None) -> RetryOverride | None:
    if slots is None:
        return None
    return RetryOverride(slots[0], BackoffSpec(*slots[1]) if slots[1] else None)


def envelope(decoded: dict[str, Any], payload: bytes) -> Envelope:
    return Envelope(
        decoded["id"],
        payload,
        decoded["created_at_ms"],
        decoded["attempt"],
        override(decoded.get("retry")),
    )


def check_payload(decoded: dict[str, Any], payload: bytes) -> None:
    data = user_data(decoded)
    assert wire.encode(data) == payload
    back = wire.decode(payload)
    if isinstance(data, float) and math.isnan(data):
        assert math.isnan(back)
    else:
        assert back == (list(data) if isinstance(data, tuple) else data)


@pytest.mark.parametrize("name", [name for name in ENTRIES if "v_hex" in str(VECTORS[name])])
def test_an_entry_packs_to_the_recorded_bytes(name: str) -> None:
    vector = VECTORS[name]
    fields = flat(vector)
    split = wire.split_entry(fields)
    assert not isinstance(split, str)
    body, job_name = split

    if name == "dlq_replay_reencoded":
        expected = Envelope(
            "rp",
            bytes.fromhex("81a17a02"),
            1794771800471,
            0,
            override([2, ["fixed", 1, *[None] * 2, 0]]),
        )
    else:
        decoded = vector["decoded"]
        payload = bytes.fromhex(decoded["payload_bin_hex"])
        expected = envelope(decoded, payload)
        if "user_data_repr" in decoded:
            check_payload(decoded, payload)

    assert wire.unpack_envelope(body) == expected
    assert wire.pack_envelope(expected) == body
    assert wire.join_entry(body, wire.check_name(wire.decode_name(job_name))) == fields


@pytest.mark.parametrize("name", [name for name in ENTRIES if "v_big" in str(VECTORS[name])])
def test_a_large_entry_packs_to_the_recorded_bytes(name: str) -> None:
    vector = VECTORS[name]
    big = vector["fields"][0]["v_big"]
    size = int(name.rpartition("_")[2])
    expected = envelope(vector["decoded"], b"z" * size)
    body = wire.pack_envelope(expected)
    assert len(body) == big["len"]
    assert body.startswith(bytes.fromhex(big["head_hex"]))
    assert body.endswith(bytes.fromhex(big["tail_hex"]))
    assert hashlib.sha256(body).hexdigest() == big["sha256"]
    assert wire.unpack_envelope(body) == expected


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_packs_to_the_recorded_bytes(name: str) -> None:
    vector = VECTORS[name]
    member = bytes.fromhex(vector["value_hex"])
    decoded = vector["decoded"]
    job_name, body = wire.split_member(member)
    assert wire.decode_name(job_name) == decoded["name"]

    slots = decoded["envelope"]
    if isinstance(slots, dict):
        payload = bytes.fromhex(slots["payload_bin_hex"])
        expected = envelope(slots, payload)
        check_payload(slots, payload)
    else:  # rescheduled by a worker
        job_id, payload_hex, created_at_ms, attempt, retry = slots
        expected = Envelope(
            job_id, bytes.fromhex(payload_hex), created_at_ms, attempt, override(retry)
        )
    assert wire.unpack_envelope(body) == expected
    assert wire.join_member(job_name, wire.pack_envelope(expected)) == member


def test_an_unknown_backoff_kind_is_written_as_unknown() -> None:
    _, body = wire.split_member(
        bytes.fromhex(VECTORS["retry_rescheduled_member_from-map"]["value_hex"])
    )
    read = wire.unpack_envelope(body)
    assert read.retry is not None
    assert read.retry.backoff is not None
    strange = RetryOverride(9, msgspec.structs.replace(read.retry.backoff, kind="Linear"))
    assert wire.pack_envelope(msgspec.structs.replace(read, retry=strange)) == body


@pytest.mark.parametrize("name", SPECS)
def test_a_spec_packs_to_the_recorded_bytes(name: str) -> None:
    vector = VECTORS[name]
    recorded = flat(vector)[1]
    slots = msgspec.msgpack.decode(recorded)
    key, job_name, pattern, payload, limit, start, end, fired, *missed = slots
    user = msgspec.msgpack.decode(payload)
    expected = StoredSpec(
        key=key,
        job_name=job_name,
        pattern=RepeatPattern("every", interval_ms=pattern["Every"][0])
        if "Every" in pattern
        else RepeatPattern("cron", *pattern["Cron"]),
        payload=user,
        limit=limit,
        start_after_ms=start,
        end_before_ms=end,
        fired=fired,
        missed_fires=MissedFiresPolicy("fire-once")
        if missed == ["FireOnce"]
        else MissedFiresPolicy("fire-all", missed[0]["FireAll"][0])
        if missed
        else MissedFiresPolicy(),
    )
    assert wire.unpack_spec(recorded) == expected
    assert wire.pack_spec(expected) == recorded
    assert wire.resolved_key(None, job_name, expected.pattern) == key
    queue = vector["key"].partition("}")[0].removeprefix("{chasqui:")
    assert Keys(queue).spec(key) == vector["key"].encode()


@pytest.mark.parametrize("name", DEAD)
def test_a_dead_entry_packs_to_the_recorded_bytes(name: str) -> None:
    vector = VECTORS[name]
    fields = flat(vector)
    dead = wire.unpack_dead(vector["entry_id"].encode(), fields)
    found = dict(zip(fields[::2], fields[1::2], strict=True))
    assert dead.dlq_id == vector["entry_id"]
    assert dead.payload == found[b"d"]
    assert dead.name.encode() == found.get(b"n", b"")
    assert dead.reason.encode() == found[b"reason"]
    assert dead.source_id.encode() == found[b"source_id"]
    assert (dead.detail or "").encode() == found.get(b"detail", b"")

    packed = wire.pack_dead(
        dead.payload,
        dead.name.encode(),
        dead.source_id.encode(),
        dead.reason,
        detail=dead.detail,
    )
    assert packed == fields


def test_a_dead_entry_that_could_not_be_decoded_keeps_its_name() -> None:
    fields = flat(VECTORS["dlq_decode_failed"])
    ours = wire.pack_dead(b"\xc1\xc1", b"nm", fields[3], "decode_failed")
    assert ours == [*fields[:2], b"n", b"nm", *fields[2:]]
    assert DEVIATIONS["dlq_decode_failed"] == 6


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_packs_to_the_recorded_bytes(name: str) -> None:
    fields = flat(VECTORS[name])
    event = wire.unpack_event(fields)
    extras = dict(event.fields)
    ts_ms = extras.pop("ts")
    assert isinstance(ts_ms, int)
    backwards = dict(reversed(extras.items()))
    packed = wire.pack_event(event.name, event.job_id or "", ts_ms, event.job_name, backwards)
    assert packed == fields
    if DEVIATIONS.get(name) == 10:
        ours = wire.pack_event(event.name, event.job_id or "", ts_ms, "att")
        assert ours == [*fields, b"n", b"att"]


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_the_recorded_key(name: str) -> None:
    queue = name.removeprefix("key_for_queue_'").removesuffix("'")
    if DEVIATIONS.get(name) == 15:
        with pytest.raises(ConfigError, match="braces"):
            Keys(queue)
    else:
        assert Keys(queue).stream == VECTORS[name]["key"].encode()


STRING_KEYS = {
    "didx_side_index_500": Keys("vec").didx("didp-500"),
    "dlid_marker_60500": Keys("vec").dlid(b"didp-60500"),
    "promoter_lock": Keys("vecw").promoter_lock,
    "scheduler_lock": Keys("vecw").scheduler_lock,
    "result_map": Keys("vecw").result("01M7GBPAHF1Y645124J3SRNMX6"),
    "result_unnamed": Keys("vecw").result("unnamed-ok"),
}


@pytest.mark.parametrize("name", STRINGS)
def test_a_string_has_the_recorded_key_and_value(name: str) -> None:
    vector = VECTORS[name]
    value = bytes.fromhex(vector["value_hex"])
    assert STRING_KEYS[name] == vector["key"].encode()
    if name == "didx_side_index_500":
        assert vector["value_hex"] == VECTORS["delayed_with_id_500"]["value_hex"]
    elif name.startswith("result_"):
        data = {"ok": {"x": [1, 2]}} if name == "result_map" else {"ok": 5}
        assert wire.encode(data) == value
        assert wire.decode(value) == data


def test_all_keys_in_the_recording_are_ours() -> None:
    keys = {vector["key"] for vector in VECTORS.values() if vector["type"] != "key-name"}
    plain = {key for key in keys if not any(part in key for part in ("spec:", ":d", "result:"))}
    made = {
        key.decode()
        for queue in ("vec", "vecw", "v2", "vecs")
        for keys_ in [Keys(queue)]
        for key in (
            keys_.stream,
            keys_.events,
            keys_.promoter_lock,
            keys_.scheduler_lock,
        )
    }
    assert plain <= made
    assert Keys("vec").delayed == VECTORS["delayed_named"]["key"].encode()
    assert Keys("vecw").dlq == VECTORS["dlq_malformed"]["key"].encode()
