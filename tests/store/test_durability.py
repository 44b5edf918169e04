"""What a witness asks, what it believes, and which servers it does not believe."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis

from chasquimq.config import Durability, DurabilityOptions
from chasquimq.store.durability import Witness, answers_early
from chasquimq.wire import Keys
from tests.store.shelf import Shelf

OPTIONS = DurabilityOptions(replicas=2, durability_timeout_ms=70)
MARK = b"*5\r\n$3\r\nSET\r\n$19\r\n{chasqui:q}:durable\r\n$0\r\n\r\n$2\r\nPX\r\n$1\r\n1\r\n"
WAITS = [
    ("local", b"*4\r\n$7\r\nWAITAOF\r\n$1\r\n1\r\n$1\r\n0\r\n$2\r\n70\r\n"),
    ("replicated", b"*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$2\r\n70\r\n"),
]
GONE = redis.ResponseError("WAITAOF cannot be used when appendonly is disabled.")
DEMOTED = redis.ResponseError("UNBLOCKED force unblock from blocking operation")
DOUBTS: list[tuple[Durability, Any, Any, bool, bool | None]] = [
    # level, answer to the mark, answer to the wait, is it confirmed, else is it accepted
    ("local", b"OK", [1, 0], True, None),
    ("local", b"OK", [0, 0], False, True),
    ("local", b"OK", [0, 5], False, True),
    ("local", GONE, [1, 0], False, True),
    ("local", b"OK", GONE, False, True),
    ("local", b"OK", DEMOTED, False, None),
    ("replicated", b"OK", 2, True, None),
    ("replicated", b"OK", 3, True, None),
    ("replicated", b"OK", 1, False, True),
    ("replicated", b"OK", 0, False, True),
    ("replicated", GONE, 2, False, True),
    ("replicated", b"OK", DEMOTED, False, None),
]
SERVERS = [  # (what INFO says, the name of one that is not believed)
    ({"redis_version": "7.2.5"}, None),
    ({"redis_version": "7.4.2"}, "Redis 7.4.2"),
    ({"redis_version": "8.6.3", "server_name": "redis"}, None),
    (
        {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "9.1.2"},
        "Valkey 9.1.2",
    ),
    ({"server_name": "valkey"}, "Valkey"),
    ({}, None),
]


@pytest.mark.parametrize(("level", "wait"), WAITS)
def test_a_wait_comes_behind_a_write_of_its_own(level: Durability, wait: bytes) -> None:
    witness = Witness(level, OPTIONS, Keys("q"))
    assert witness.commands == MARK + wait
    assert (witness.answers, witness.timeout_ms) == (2, 70)


@pytest.mark.parametrize(("level", "marked", "waited", "confirmed", "accepted"), DOUBTS)
def test_only_a_full_answer_leaves_no_doubt(
    level: Durability, marked: Any, waited: Any, confirmed: bool, accepted: bool | None
) -> None:
    doubt = Witness(level, OPTIONS, Keys("q")).doubt(marked, waited)
    assert (doubt is None) is confirmed
    if doubt is not None:
        assert doubt.accepted is accepted


@pytest.mark.parametrize(("facts", "name"), SERVERS)
def test_some_servers_are_not_believed(facts: dict[str, str], name: str | None) -> None:
    assert answers_early(facts) == name


async def test_a_server_is_believed_if_it_waits_for_its_disk(own_shelf: Shelf) -> None:
    """Under everysec it syncs once a second: more answers than that are more than it can know.
    If this is red for Valkey, it has been repaired, and `answers_early` should say since when."""
    if own_shelf.server.server.binary.version < (7, 2, 0):
        pytest.skip("WAITAOF came with Redis 7.2")
    own_shelf.redis.config_set("appendfsync", "everysec")
    with own_shelf.server.client(single_connection_client=True) as client:
        early = any(_confirmed_in_a_blink(client) > 2 for _ in range(3))
    assert early is (own_shelf.server.name == "valkey")


def _confirmed_in_a_blink(client: redis.Redis) -> int:
    begin, confirmed = time.monotonic(), 0
    while time.monotonic() < begin + 0.7:
        client.set("written", "but is it synced?")
        confirmed += client.execute_command("WAITAOF", 1, 0, 20)[0]
    return confirmed if time.monotonic() < begin + 0.95 else 0
