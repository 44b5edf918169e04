"""The reference pages list every parameter, with the default it really has."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from chasquimq import BackoffSpec, Job, Queue, Worker
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
        ("worker.md", "Worker(queue_name, handler, *, ...)", Worker.__init__),
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
        if default is inspect.Parameter.empty:
            assert listed[name] == "required"
        elif default is not None:  # None stands for the default of an option struct
            assert listed[name] == f"`{default!r}`".replace("'", '"'), name


@pytest.mark.parametrize("method", [n for n in vars(Queue) if n[0] != "_"])
def test_every_method_of_a_queue_is_there(method: str) -> None:
    assert re.search(rf"`{method}|await {method}", (REFERENCE / "queue.md").read_text())


@pytest.mark.parametrize("method", [n for n in vars(Worker) if n[0] != "_"])
def test_every_method_of_a_worker_is_there(method: str) -> None:
    assert re.search(rf"`{method}|await {method}", (REFERENCE / "worker.md").read_text())


@pytest.mark.parametrize("kind", [Job, BackoffSpec])
def test_every_field_of_a_value_is_there(kind: type) -> None:
    text = (REFERENCE / "worker.md").read_text() + (REFERENCE / "queue.md").read_text()
    for field in kind.__struct_fields__:  # type: ignore[attr-defined]
        assert f"`{field}`" in text
