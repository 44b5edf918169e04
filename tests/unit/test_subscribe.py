"""What a follower is refused at the door, before anything is sent."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from chasquimq import ArgumentError, ConfigError, QueueEvent, QueueEvents

SECRET = "hunter2hunter2"  # not a secret

REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"last_event_id": ""}, ConfigError, r"last_event_id '' is no place.*'\$' for what is new"),
    ({"last_event_id": "now"}, ConfigError, r"last_event_id 'now' is no place"),
    ({"last_event_id": ">"}, ConfigError, "no place"),
    ({"last_event_id": "+"}, ConfigError, "no place"),
    ({"last_event_id": "-1"}, ConfigError, "no place"),
    ({"last_event_id": "1-"}, ConfigError, "no place"),
    ({"last_event_id": "1-2-3"}, ConfigError, "no place"),
    ({"last_event_id": " 1-2"}, ConfigError, "no place"),
    ({"last_event_id": "1-2\n"}, ConfigError, "no place"),
    ({"last_event_id": "١-٢"}, ConfigError, "no place"),
    ({"last_event_id": "18446744073709551616-0"}, ConfigError, "no place"),
    ({"last_event_id": "0-18446744073709551616"}, ConfigError, "no place"),
    ({"last_event_id": 0}, ArgumentError, r"last_event_id is a str, got int: 0"),
    ({"last_event_id": b"0"}, ArgumentError, r"last_event_id is a str, got bytes"),
    ({"last_event_id": None}, ArgumentError, r"last_event_id is a str, got NoneType"),
    ({"block_ms": 0}, ConfigError, r"block_ms must be at least 1, got 0"),
    ({"block_ms": 1.5}, ArgumentError, r"block_ms is a whole number"),
    ({"count": 0}, ConfigError, r"count must be at least 1, got 0"),
    ({"reconnect_max_attempts": 0}, ConfigError, r"max_retries must be at least 1"),
    ({"events": "complete"}, ArgumentError, r"'complete'; did you mean 'completed'\?"),
    ({"events": ["dlq", "retry_scheduled"]}, ArgumentError, r"mean 'retry-scheduled'\?"),
    ({"events": "zzz"}, ArgumentError, r"known: active, completed, delayed, dlq, drained"),
    ({"events": ()}, ConfigError, r"events is empty"),
    ({"events": 7}, ArgumentError, r"events is a name or several, got 7"),
    ({"events": ["dlq", 7]}, ArgumentError, r"events holds names, got int"),
    ({"names": b"mail"}, ArgumentError, r"names holds names, got int"),
    ({"names": []}, ConfigError, r"names is empty"),
    ({"evnts": "dlq"}, ArgumentError, r"'evnts'; did you mean 'events'\?"),
    ({"redis_url": "redis://h:port"}, ConfigError, "redis_url"),
]


@pytest.mark.parametrize(("options", "kind", "words"), REFUSED)
def test_a_wrong_option_is_refused_with_its_name_and_the_fix(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        QueueEvents("mail", **options)
    assert str(caught.value).startswith("CMQ-004")


@pytest.mark.parametrize("name", ["", "a{b", "a\nb"])
def test_a_wrong_queue_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="queue name"):
        QueueEvents(name)


@pytest.mark.parametrize(
    "place", ["$", "0", "0-0", "1700000000000-5", "18446744073709551615-18446744073709551615"]
)
def test_a_place_is_kept_as_given_until_something_is_read(place: str) -> None:
    assert QueueEvents("mail", last_event_id=place).last_event_id == place


@pytest.mark.parametrize("events", ["progress", ("stalled", "completed"), {"dlq"}, iter(["dlq"])])
def test_every_known_event_may_be_asked_for(events: Any) -> None:
    assert QueueEvents("mail", events=events, names="").name == "mail"


def test_no_secret_is_shown() -> None:
    events = QueueEvents("mail", redis_url=f"redis://app:{SECRET}@host:7/2")
    assert repr(events) == "QueueEvents('mail', redis_url='redis://app:***@host:7/2')"


def test_an_event_is_frozen_and_made_as_in_the_reference() -> None:
    event = QueueEvent("completed", "job", "mail", {"attempt": 1})
    assert (event.name, event.job_id, event.job_name, event.fields, event.id) == (
        *("completed", "job", "mail", {"attempt": 1}),
        "",
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.name = "failed"  # type: ignore[misc]


async def test_closed_before_it_was_used_it_just_stops() -> None:
    events = QueueEvents("mail", redis_url="redis://127.0.0.1:1")
    await events.close()
    await events.close()
    assert events.is_closed
    async with events as entered:
        assert [event async for event in entered] == []


def test_it_may_be_closed_in_another_loop_than_it_was_made_in() -> None:
    async def make() -> QueueEvents:
        return QueueEvents("mail")

    asyncio.run(asyncio.run(make()).close())
