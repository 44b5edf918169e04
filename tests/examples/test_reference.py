"""The reference pages list every parameter, with the default it really has."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import (
    BackoffSpec,
    Consumer,
    Counts,
    Job,
    MissedFiresPolicy,
    Producer,
    Promoter,
    Queue,
    QueueEvent,
    QueueEvents,
    RepeatableMeta,
    RepeatPattern,
    Route,
    Scheduler,
    Worker,
)
from chasquimq.engine.graveyard import Which
from chasquimq.health import Connection, Counters, Health
from chasquimq.job import NativeJob
from chasquimq.native import producer
from tests.examples.page import ROOT

REFERENCE = ROOT / "docs" / "reference"


def section(page: str, heading: str) -> str:
    """A part of a page, from its heading to the next one of any level."""
    text = (REFERENCE / page).read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no heading {heading!r}"
    return found[1]


def rows(text: str) -> dict[str, str]:
    """First and second column of a section's tables: a name and its default."""
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) *\|", text, re.MULTILINE))


@pytest.mark.parametrize(
    ("page", "heading", "function"),
    [
        ("queue.md", "Queue(name, *, ...)", Queue.__init__),
        ("queue.md", "await add(name, data, *, ...)", Queue.add),
        (
            "queue.md",
            "await upsert_repeatable_job(name, data, *, repeat, ...)",
            Queue.upsert_repeatable_job,
        ),
        ("queue.md", "await wait_for_result(job_id, ...)", Queue.wait_for_result),
        ("queue.md", "await reschedule(job_id, ...)", Queue.reschedule),
        ("queue-events.md", "QueueEvents(queue_name, *, ...)", QueueEvents.__init__),
        ("worker.md", "Worker(queue_name, handler, *, ...)", Worker.__init__),
        ("worker.md", "adjust(*, ...)", Worker.adjust),
        ("native.md", "Producer(redis_url, queue_name, *, ...)", Producer.__init__),
        ("native.md", "Consumer(redis_url, queue_name, *, ...)", Consumer.__init__),
        ("native.md", "Promoter(redis_url, queue_name, *, ...)", Promoter.__init__),
        ("native.md", "Scheduler(redis_url, queue_name, *, ...)", Scheduler.__init__),
    ],
)
def test_every_parameter_is_listed(page: str, heading: str, function: Callable[..., Any]) -> None:
    listed = rows(section(page, heading))
    parameters = inspect.signature(function).parameters
    assert set(listed) == set(parameters) - {"self"}
    for name, parameter in parameters.items():
        if name == "self":
            continue
        default = parameter.default
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        if default is inspect.Parameter.empty:
            assert listed[name] == "required"
        elif default is not None:  # None stands for the default of an option struct
            assert listed[name] == f"`{default!r}`".replace("'", '"'), name


SHOWN = [n for n in dir(Queue) if "_dlq" in n or "repeatable" in n or n == "next_fires"]


@pytest.mark.parametrize("method", [n for n in SHOWN if n != "upsert_repeatable_job"])
def test_a_method_is_shown_with_its_parameters(method: str) -> None:
    _, *own = inspect.signature(getattr(Queue, method)).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in own]
    assert section("queue.md", f"await {method}{inspect.Signature(bare)}")


def test_every_filter_of_the_dlq_is_listed() -> None:
    listed = rows(section("queue.md", "await peek_dlq(limit=20, *, after=None, **which)"))
    assert list(listed) == list(Which.__annotations__)


@pytest.mark.parametrize("method", [n for n in dir(Queue) if n[0] != "_"])
def test_every_method_of_a_queue_is_there(method: str) -> None:
    assert re.search(rf"`{method}|await {method}", (REFERENCE / "queue.md").read_text())


@pytest.mark.parametrize("method", [n for n in vars(Worker) if n[0] != "_"])
def test_every_method_of_a_worker_is_there(method: str) -> None:
    assert re.search(rf"`{method}|await {method}", (REFERENCE / "worker.md").read_text())


@pytest.mark.parametrize("method", [n for n in vars(QueueEvents) if n[0] != "_"])
def test_every_method_of_a_follower_is_there(method: str) -> None:
    text = section("queue-events.md", "Its life")
    assert re.search(rf"`{method}`|await {method}\(", text)


def test_every_field_of_an_event_is_there() -> None:
    listed = rows(section("queue-events.md", "QueueEvent"))
    assert set(listed) == {field.name for field in dataclasses.fields(QueueEvent)}


@pytest.mark.parametrize("kind", [Job, BackoffSpec])
def test_every_field_of_a_value_is_there(kind: type) -> None:
    text = "".join((REFERENCE / f"{page}.md").read_text() for page in ("worker", "queue", "job"))
    for field in kind.__struct_fields__:  # type: ignore[attr-defined]
        assert f"`{field}`" in text


@pytest.mark.parametrize("kind", [RepeatPattern, MissedFiresPolicy, RepeatableMeta])
def test_every_field_of_what_repeats_is_listed_with_its_default(kind: type) -> None:
    listed = rows(section("queue.md", kind.__name__))
    parameters = inspect.signature(kind).parameters
    assert list(listed) == list(parameters)
    for name, default in listed.items():
        real = parameters[name].default
        said = "required" if real is inspect.Parameter.empty else repr(real).replace("'", '"')
        assert default.strip("`") == said, name


def test_every_key_of_a_native_spec_is_listed() -> None:
    assert tuple(rows(section("native.md", "Specs"))) == producer._SPEC


def test_every_count_is_there() -> None:
    listed = rows(section("queue.md", "Counts"))
    assert list(listed) == list(Counts.__struct_fields__)


def test_everything_of_a_job_is_there() -> None:
    text = (REFERENCE / "job.md").read_text()
    for name in [n for n in vars(Job) if n[0] != "_"]:  # fields are slots: they are in here, too
        assert re.search(rf"^\| `{name}` \||await {name}\(", text, re.MULTILINE), name
    defaults = inspect.signature(Job.wait_for_result).parameters.values()
    shown = ", ".join(f"{p.name}={p.default}" for p in defaults if p.name != "self")
    assert f"## await wait_for_result({shown})" in text


@pytest.mark.parametrize("door", [Producer, Consumer, Promoter, Scheduler])
def test_every_method_of_a_native_door_is_there(door: type) -> None:
    text = (REFERENCE / "native.md").read_text()
    for method in [name for name in dir(door) if name[0] != "_"]:
        # Parameters, too: they stand in the tables as one would write the call.
        names = list(inspect.signature(getattr(door, method)).parameters)[1:]
        assert re.search(rf"`(await )?{method}\({', '.join(names)}\)`", text), method


def test_every_field_of_a_native_job_is_there() -> None:
    assert set(NativeJob.__struct_fields__) == set(rows(section("native.md", "NativeJob")))


@pytest.mark.parametrize("kind", [Route, Health, Connection, Counters])
def test_every_field_of_what_a_worker_shows_is_listed(kind: type) -> None:
    listed = rows(section("worker.md", kind.__name__))
    assert list(listed) == list(inspect.signature(kind).parameters)
