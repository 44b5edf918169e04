"""The public names are exactly these. Whoever adds one adds it here, and to the reference docs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import chasquimq

ERRORS = {
    "AccessError",
    "ArgumentError",
    "ChasquiError",
    "ConfigError",
    "DataLossError",
    "EncodeError",
    "InputChangedError",
    "JobFailedError",
    "MalformedError",
    "ModelError",
    "NameTooLongError",
    "NoHandlerError",
    "NotSupportedError",
    "PayloadTooLargeError",
    "QueueFullError",
    "ResultTimeoutError",
    "RetryError",
    "ShutdownError",
    "StoreError",
    "StoreUnavailableError",
    "TimeLimitError",
    "UnconfirmedError",
    "UnrecoverableError",
    "WireError",
}
DOORS = {"Consumer", "Producer", "Promoter", "Queue", "QueueEvents", "Scheduler", "Worker"}
REPEATED = {"MissedFiresPolicy", "RepeatPattern", "RepeatableMeta"}
VALUES = {"BackoffSpec", "Counts", "Handler", "Health", "Job", "QueueEvent", "Route", "Router"}
SINKS = {"InMemorySink", "MetricsSink"}
PUBLIC = ERRORS | DOORS | VALUES | REPEATED | SINKS | {"version", "run_workers"}


def test_the_public_names_are_these() -> None:
    assert set(chasquimq.__all__) == PUBLIC
    assert list(chasquimq.__all__) == sorted(chasquimq.__all__)


def test_every_public_name_is_there() -> None:
    assert all(hasattr(chasquimq, name) for name in PUBLIC)


def test_nothing_else_looks_public() -> None:
    seen = {
        name
        for name, value in vars(chasquimq).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert seen - {"annotations", "TYPE_CHECKING"} <= PUBLIC  # what imports leave behind
    assert set(dir(chasquimq)) == PUBLIC


def test_type_checkers_see_the_names_that_come_later() -> None:
    """They see imports, the interpreter a table."""
    told = {
        name.name: str(line.module).removeprefix("chasquimq.")
        for block in ast.parse(inspect.getsource(chasquimq)).body
        if isinstance(block, ast.If)
        for line in block.body
        if isinstance(line, ast.ImportFrom)
        for name in line.names
    }
    assert told == chasquimq._LATER


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("chasquimq", {"asyncio", "msgspec", "chasquimq.queue"}),
        ("chasquimq.spark.source", {"chasquimq.queue", "chasquimq.worker", "chasquimq.store"}),
    ],
)
def test_who_needs_a_part_does_not_wait_for_the_rest(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert not absent & set(done.stdout.split())


def test_every_error_is_public() -> None:
    errors = {
        name
        for name, value in vars(chasquimq.errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and not name.startswith("_")
    }
    assert errors == ERRORS
