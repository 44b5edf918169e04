"""The golden vectors, sent by our native Producer: Redis holds the bytes that were recorded.

The same payload, id, name, override and moment go in; entry and member come out as the reference
wrote them. Ids that it made up itself are replaced by ours.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from chasquimq.native import Producer
from chasquimq.wire import Keys
from tests.servers import DialectServer

RECORDED = json.loads((Path(__file__).parent / "vectors.json").read_text())
VECTORS: dict[str, dict[str, Any]] = {vector["name"]: vector for vector in RECORDED["vectors"]}
ENTRIES = [name for name in VECTORS if name.startswith("imm_")]
MEMBERS = [name for name in VECTORS if name.startswith("delayed_")]
BACKOFF = ("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms")
HOUR_MS = 3_600_000


class Clock:
    """What the producer takes for now."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("chasquimq.native.producer.now_ms", clock)
    return clock


def options(decoded: dict[str, Any], name: str) -> dict[str, Any]:
    """What a caller would have given for this envelope. Ids of 26 are the producer's own."""
    given: dict[str, Any] = {"name": name}
    if len(decoded["id"]) != 26:
        given["id"] = decoded["id"]
    if decoded.get("retry") is not None:
        attempts, backoff = decoded["retry"]
        given["retry"] = {"max_attempts": attempts}
        if backoff is not None:
            given["retry"]["backoff"] = dict(zip(BACKOFF, backoff, strict=True))
    return given


def payload(vector: str, decoded: dict[str, Any]) -> bytes:
    if decoded["payload_bin_hex"].startswith("<"):
        return b"z" * int(vector.rpartition("_")[2])
    return bytes.fromhex(decoded["payload_bin_hex"])


def same(ours: bytes, our_id: str, recorded: bytes, decoded: dict[str, Any]) -> bool:
    return ours == recorded.replace(decoded["id"].encode(), our_id.encode(), 1)


def entry_name(vector: dict[str, Any]) -> str:
    names = [bytes.fromhex(field["v_hex"]) for field in vector["fields"] if field["f"] == "n"]
    return names[0].decode() if names else ""


async def test_every_recorded_entry_is_what_we_send(
    dialect_server: DialectServer, queue_name: str, clock: Clock
) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    door = Producer(dialect_server.url, queue_name, dialect=dialect_server.forced_dialect)
    for name in ENTRIES:
        vector = VECTORS[name]
        decoded = vector["decoded"]
        clock.now_ms = decoded["created_at_ms"]
        given = options(decoded, entry_name(vector))
        body = payload(name, decoded)
        if given == {"name": ""}:
            job_id = await door.add(body)
        else:
            job_id = await door.add_with_options(body, given)
        [(_, found)] = client.xrevrange(keys.stream, count=1)
        assert list(found) == [field["f"].encode() for field in vector["fields"]], name
        first = vector["fields"][0]
        if "v_hex" in first:
            assert same(found[b"d"], job_id, bytes.fromhex(first["v_hex"]), decoded), name
        else:
            assert hashlib.sha256(found[b"d"]).hexdigest() == first["v_big"]["sha256"], name
        assert found.get(b"n", b"").decode() == entry_name(vector), name
    await door.shutdown()
    assert client.xlen(keys.stream) == len(ENTRIES) > 60


async def test_every_recorded_member_is_what_we_send(
    dialect_server: DialectServer, queue_name: str, clock: Clock
) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    door = Producer(dialect_server.url, queue_name, dialect=dialect_server.forced_dialect)
    for name in MEMBERS:
        decoded = VECTORS[name]["decoded"]
        envelope = decoded["envelope"]
        clock.now_ms = envelope["created_at_ms"]
        given = options(envelope, decoded["name"])
        body = payload(name, envelope)
        if name == "delayed_at_datetime":
            job_id = await door.add_at_with_options(clock.now_ms + HOUR_MS, body, given)
        else:
            job_id = await door.add_in_with_options(HOUR_MS, body, given)
        [member] = client.zrange(keys.delayed, 0, -1)
        assert same(member, job_id, bytes.fromhex(VECTORS[name]["value_hex"]), envelope), name
        if "id" in given:
            assert client.get(keys.didx(job_id)) == member
            assert client.get(keys.dlid(job_id)) == b"1"
        client.delete(keys.delayed)
    await door.shutdown()
    assert len(MEMBERS) >= 7


@pytest.mark.parametrize("name", ["delayed_with_id_500", "delayed_with_id_60500"])
async def test_a_marker_lives_as_long_as_recorded(
    dialect_server: DialectServer, queue_name: str, name: str
) -> None:
    client, keys = dialect_server.client(), Keys(queue_name)
    door = Producer(dialect_server.url, queue_name, dialect=dialect_server.forced_dialect)
    delay_ms = int(name.rpartition("_")[2])
    await door.add_in_bulk_with_ids(delay_ms, [("known", b"x")])
    await door.shutdown()
    recorded = {500: 3_601, 60_500: 3_660}[delay_ms]
    assert recorded - 5 <= client.ttl(keys.dlid("known")) <= recorded
    assert recorded - 5 <= client.ttl(keys.didx("known")) <= recorded
