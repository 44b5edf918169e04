"""Bytes cross between the native doors of both programs, and come back the same way."""

from __future__ import annotations

from typing import Any

import msgspec

from chasquimq import wire
from tests.chaos.kit.wait import eventually
from tests.interop.conftest import MakeSide, both_ways
from tests.interop.keys import Keys

PAYLOADS = [b"", b"\xc1 no msgpack", bytes(range(256)), b"z" * 255, b"z" * 70_000]
CURVE = {"kind": "exponential", "delay_ms": 10, "multiplier": 1.5, "jitter_ms": 0}
RETRY = {"max_attempts": 3, "backoff": CURVE}
WORK: dict[str, Any] = {"concurrency": 4, "read_block_ms": 200}
HOUR_MS = 3_600_000


@both_ways
def test_payloads_arrive_as_they_were_added(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    producer, consumer = side(a), side(b)
    added = {producer.produce("add", payload): ("", payload) for payload in PAYLOADS}
    options = {"id": "ñ-id", "name": "名前", "retry": RETRY}
    added[producer.produce("add_with_options", b"1", options)] = ("名前", b"1")
    ids = producer.produce("add_bulk", PAYLOADS)
    added |= {job_id: ("", payload) for job_id, payload in zip(ids, PAYLOADS, strict=True)}
    [job_id] = producer.produce("add_bulk_with_options", [b"2"], {"id": "one", "name": "n"})
    added[job_id] = ("n", b"2")
    ids = producer.produce("add_bulk_named", [("a", b"3"), ("", b"4")])
    added |= {ids[0]: ("a", b"3"), ids[1]: ("", b"4")}
    created = keys.created_at_ms()

    consumer.consume(**WORK)
    consumer.wait_seen(len(added))
    keys.wait_drained()
    seen = {job.id: (job.name, job.data) for job in consumer.seen()}
    assert seen == added
    assert len(consumer.seen()) == len(added)
    assert all(job.attempt == 0 for job in consumer.seen())
    assert {job.id: job.created_at_ms for job in consumer.seen()} == created


@both_ways
def test_delayed_payloads_arrive_when_they_are_due(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    producer, consumer = side(a), side(b)
    soon = int(keys.client.time()[0] + 1) * 1000
    added = {
        producer.produce("add_in", 200, b"1"): ("", b"1"),
        producer.produce("add_in_with_options", 200, b"2", {"id": "i", "name": "n"}): ("n", b"2"),
        producer.produce("add_at", soon, b"3"): ("", b"3"),
        producer.produce("add_at_with_options", soon, b"4", {"name": "m"}): ("m", b"4"),
        producer.produce("add_at", 1, b"5"): ("", b"5"),
    }
    added |= dict.fromkeys(producer.produce("add_in_bulk", 200, [b"6"] * 3), ("", b"6"))
    consumer.consume(**WORK)
    consumer.wait_seen(len(added))
    keys.wait_drained()
    assert {job.id: (job.name, job.data) for job in consumer.seen()} == added


@both_ways
def test_what_one_delayed_the_other_cancels(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    here, there = side(a), side(b)
    for number in range(3):
        here.produce("add_in_with_options", HOUR_MS, b"x", {"id": f"j-{number}"})
    assert there.produce("cancel_delayed_bulk", ["j-2", "j-9", "j-0"]) == [True, False, True]
    assert there.produce("cancel_delayed_bulk", []) == []
    assert here.produce("cancel_delayed", "j-0") is False
    assert list(keys.created_at_ms()) == ["j-1"]


@both_ways
def test_an_override_holds_and_what_died_can_be_replayed(
    side: MakeSide, keys: Keys, a: str, b: str
) -> None:
    producer, consumer = side(a), side(b)
    job_id = producer.produce("add_with_options", b"\xc1", {"name": "n", "retry": RETRY})
    consumer.consume(fail_below=99, **WORK)
    keys.wait_dead(1)
    runs = [(job.id, job.data, job.attempt) for job in consumer.seen()]
    assert runs == [(job_id, b"\xc1", attempt) for attempt in range(3)]
    consumer.stop()
    for looker in (producer, side(b)):
        [row] = looker.produce("peek_dlq", 5)
        assert (row["name"], row["reason"]) == ("n", "retries_exhausted")
        assert wire.unpack_envelope(row["payload"]).payload == b"\xc1"
    assert producer.produce("replay_dlq", 5) == 1
    again = side(b)
    again.consume(**WORK)
    [run] = again.wait_seen(1)
    assert (run.id, run.data, run.attempt) == (job_id, b"\xc1", 0)


@both_ways
def test_what_one_returned_the_other_reads(side: MakeSide, keys: Keys, a: str, b: str) -> None:
    returns = [(b"1", b"\xc1"), (b"2", b"x" * 70_000), (b"3", b""), (b"4", None), (b"5", "text")]
    reader, consumer = side(a), side(b)
    ids = reader.produce("add_bulk", [payload for payload, _ in returns])
    consumer.consume(returns, store_results=True, result_ttl_ms=60_000, **WORK)
    consumer.wait_seen(len(ids))
    keys.wait_drained()
    eventually(lambda: reader.produce("get_result", ids[1]))
    kept = [b"\xc1", b"x" * 70_000, None, None, None]
    assert reader.produce("get_result_bulk", [*ids, "unknown"]) == [*kept, None]
    assert consumer.produce("get_result", ids[0]) == b"\xc1"


def rows(keys: Keys) -> list[Any]:
    """Every entry and member, field by field; what differs by nature is blotted out."""
    entries = [fields for _, fields in keys.client.xrange(keys.stream)]
    members = [wire.split_member(member) for member in keys.client.zrange(keys.delayed, 0, -1)]
    found: list[Any] = [[*row.items()] for row in entries]
    found = [[(field, masked(v) if field == b"d" else v) for field, v in row] for row in found]
    return found + sorted((name, masked(body)) for name, body in members)


def masked(envelope: bytes) -> bytes:
    """An envelope whose moment, and whose id where it is a ULID, are of no account."""
    slots = msgspec.msgpack.decode(envelope)
    moment = b"\xcf" + slots[2].to_bytes(8, "big")
    assert moment in envelope
    job_id = slots[0].encode() if len(slots[0]) == 26 else b""
    return envelope.replace(moment, b"?" * 9).replace(job_id, b"?" * len(job_id))


def test_both_write_the_same_bytes(side: MakeSide, keys: Keys) -> None:
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("add", (b"x",)),
        ("add", (b"z" * 300,)),
        ("add_with_options", (b"x", {"id": "an-id", "name": "n"})),
        ("add_with_options", (b"x", {"retry": {}})),
        ("add_with_options", (b"x", {"id": "r", "retry": RETRY})),
        ("add_with_options", (b"x", {"retry": {"max_attempts": 0, "backoff": None}})),
        ("add_with_options", (b"x", {"retry": {"backoff": {**CURVE, "multiplier": 3}}})),
        ("add_bulk_named", ([("a", b"x"), ("", b"y")],)),
        ("add_in", (0, b"x")),
        ("add_in_with_options", (HOUR_MS, b"x", {"id": "later", "name": "n", "retry": RETRY})),
        ("add_in_bulk", (HOUR_MS, [b"x", b"y"])),
    ]
    written = []
    for name in ("ours", "reference"):
        producer = side(name)
        for method, arguments in calls:
            producer.produce(method, *arguments)
        written.append(rows(keys))
        keys.client.delete(*keys.client.keys(f"{keys.stream.removesuffix('stream')}*"))
    assert written[0] == written[1]
    assert len(written[0]) == 13


def test_our_promoter_serves_a_fleet_of_the_reference(side: MakeSide, keys: Keys) -> None:
    producer, consumer, promoter = side("reference"), side("reference"), side("ours")
    ids = producer.produce("add_in_bulk", 100, [b"1", b"2", b"3"])
    ids.append(producer.produce("add_in_with_options", 100, b"4", {"id": "known", "name": "n"}))
    consumer.consume(delayed_enabled=False, **WORK)
    promoter.promote()
    consumer.wait_seen(4)
    keys.wait_drained()
    assert sorted(job.id for job in consumer.seen()) == sorted(ids)
    prefix = keys.stream.removesuffix("stream")
    assert not keys.client.exists(f"{prefix}didx:known"), "as the reference would"


def test_our_promoter_waits_for_the_reference_to_let_go(side: MakeSide, keys: Keys) -> None:
    leader, heir = side("reference"), side("ours")
    leader.consume(consumer_id="leader", **WORK)
    eventually(lambda: keys.client.get(keys.lock) == b"leader")
    heir.promote(holder_id="heir", poll_interval_ms=50)
    leader.produce("add_in", 50, b"x")
    leader.wait_seen(1)
    assert keys.client.get(keys.lock) == b"leader"
    leader.stop()
    keys.client.pexpire(keys.lock, 50)  # killed: its lock expires, in five seconds
    eventually(lambda: keys.client.get(keys.lock) == b"heir")
