from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from chasquimq import Queue, QueueEvents, Worker, wire
from chasquimq.errors import ConfigError
from chasquimq.native import Consumer, Producer, Promoter, Scheduler
from chasquimq.sync import Queue as SyncQueue
from chasquimq.wire import Keys

NOWHERE = "redis://127.0.0.1:1"
KEYS = [
    (Keys("q").stream, "{chasqui:q}:stream"),
    (Keys("q").delayed, "{chasqui:q}:delayed"),
    (Keys("q").dlq, "{chasqui:q}:dlq"),
    (Keys("q").events, "{chasqui:q}:events"),
    (Keys("q").repeat, "{chasqui:q}:repeat"),
    (Keys("q").promoter_lock, "{chasqui:q}:promoter:lock"),
    (Keys("q").scheduler_lock, "{chasqui:q}:scheduler:lock"),
    (Keys("q").paused, "{chasqui:q}:paused"),
    (Keys("q").unique("a"), "{chasqui:q}:unique:a"),
    (Keys("q").durable, "{chasqui:q}:durable"),
    (Keys("q").wake, "{chasqui:q}:wake"),
    (Keys("q").result("é"), "{chasqui:q}:result:é"),
    (Keys("q").dlid(b"1"), "{chasqui:q}:dlid:1"),
    (Keys("q").didx("1"), "{chasqui:q}:didx:1"),
    (Keys("q").spec("a::every:5"), "{chasqui:q}:repeat:spec:a::every:5"),
    (Keys("q").idmp("p", "1"), "{chasqui:q}:idmp:p:1"),
    (Keys("a b:ñ").stream, "{chasqui:a b:ñ}:stream"),
]


@pytest.mark.parametrize(("key", "expected"), KEYS)
def test_a_key_has_the_documented_bytes(key: bytes, expected: str) -> None:
    assert key == expected.encode()


@pytest.mark.parametrize(
    "name", ["", "{", "a}", "a\nb", "\0", "\x7f", "\x9b", "\ud800", b"q", None]
)
def test_a_queue_name_that_breaks_keys_or_tools_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="queue name"):
        wire.check_queue_name(name)
    with pytest.raises(ConfigError):
        Keys(name)


REFUSED = [
    ("q" * 201, "201 bytes"),
    ("\u00f1" * 101, "202 bytes"),
    *((f"a{mark}b", "direction of text") for mark in "\u061c\u200e\u200f\u202a\u202e\u2066\u2069"),
    *((name, "is a path") for name in (".", "..", "../x", "a/..", "a/./b", "/etc", "\\x", "a\\..")),
]


DOORS: tuple[Callable[[str], object], ...] = (
    wire.check_queue_name,
    Queue,
    SyncQueue,
    QueueEvents,
    lambda name: Worker(name, print),
    *(functools.partial(kind, NOWHERE) for kind in (Consumer, Producer, Promoter, Scheduler)),
)


@pytest.mark.parametrize(("name", "why"), REFUSED)
def test_a_queue_is_not_given_a_name_that_misleads(name: str, why: str) -> None:
    """But one that was given it before can be looked at."""
    for door in DOORS:
        with pytest.raises(ConfigError, match=why) as refused:
            door(name)
        assert str(refused.value).isprintable() and len(str(refused.value)) < 400
    assert Keys(name).stream == b"{chasqui:%b}:stream" % name.encode()


@pytest.mark.parametrize(
    "name",
    ["q" * 200, "\u00f1" * 100, "a.b", "...", "a..b", "eu/mail", "a:b", "a\\b", ".hidden", "a/"],
)
def test_names_that_only_look_like_it_are_fine(name: str) -> None:
    assert Queue(name).name == name


def test_keys_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Keys("q").stream = b"other"  # type: ignore[misc]
    assert not hasattr(Keys("q"), "__dict__")


def is_accepted(name: str) -> bool:
    try:
        wire.check_queue_name(name)
    except ConfigError:
        return False
    return True


names = st.text(min_size=1, max_size=12).filter(is_accepted)


@given(queue=names, other=names, job_id=st.text(min_size=1).filter(str.isprintable))
def test_keys_of_one_queue_share_a_slot_and_two_queues_share_no_key(
    queue: str, other: str, job_id: str
) -> None:
    def made(name: str) -> list[bytes]:
        keys = Keys(name)
        return [
            *(getattr(keys, slot) for slot in Keys.__slots__ if slot not in ("queue", "tag")),
            keys.result(job_id),
            keys.dlid(job_id),
            keys.didx(job_id),
            keys.spec(job_id),
            keys.idmp("p", job_id),
        ]

    ours = made(queue)
    assert len(set(ours)) == len(ours)
    # A cluster hashes what stands between the first brace and the first closing one after it.
    assert {key.partition(b"{")[2].partition(b"}")[0] for key in ours} == {
        b"chasqui:" + queue.encode()
    }
    if other != queue:
        assert not {*ours} & {*made(other)}


PRODUCER = "5f2b7c1e-0000-4000-8000-000000000001"  # ours are such, without a colon
KINDS = ("result", "dlid", "didx", "unique", "spec")
parts = st.text(min_size=1, max_size=8) | st.sampled_from(
    ["a:b", "spec:a", "lock", ":", "repeat:spec:a", "result:a", "}", "{x}", "a\nb", "stream"]
)
ids = st.lists(parts.filter(str.isprintable), min_size=1, max_size=3, unique=True)


@given(st.lists(names, min_size=1, max_size=3, unique=True), ids)
def test_what_differs_in_queue_kind_or_id_has_another_key_and_the_slot_of_its_queue(
    queues: list[str], job_ids: list[str]
) -> None:
    found: list[bytes] = []
    for keys in map(Keys, queues):
        slots = [slot for slot in Keys.__slots__ if slot not in ("queue", "tag")]
        ours = [getattr(keys, slot) for slot in slots]
        for job_id in job_ids:
            ours += [getattr(keys, kind)(job_id) for kind in KINDS]
            ours.append(keys.idmp(PRODUCER, job_id))
        assert {key_slot(key) for key in ours} == {key_slot(keys.stream)}
        found += ours
    assert len({*found}) == len(found)
