"""What may not be loaded by those who need little: no timings, but what would take the time.

`bench/startup.py` measures it; `bench/reports/2026-11-18-startup.md` is what came of it.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from tests.house.tree import SOURCE

COMMAND = "from chasquimq.cli import main; main({argv!r})"
# Each of these takes longer than all of ours that a page of help needs.
HEAVY = {
    *("typer", "rich", "click", "msgspec", "redis", "hiredis", "uvloop", "pydantic"),
    *("typing", "re", "enum", "datetime", "pathlib", "functools", "inspect", "json", "logging"),
    *("asyncio", "socket", "ssl", "zoneinfo", "subprocess", "importlib.metadata"),
}
ELSEWHERE = {"pyspark", "py4j", "pyarrow", "pandas", "plotly", "prometheus_client", "opentelemetry"}
OTHER_ROOMS = {f"chasquimq.{room}" for room in ("cli", "spark", "server", "dashboard")}
HAPPENINGS = {"announce", "guard", "metrics", "stream"}  # of `observe`: no exporter, no web server


@cache
def loaded(program: str) -> frozenset[str]:
    """The modules that a program loads, beyond those of a Python that does nothing."""
    told = "import sys; before = set(sys.modules)\n{}\nprint('\\n', *set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", told.format(program)],
        env={"PYTHONPATH": str(SOURCE.parent)},  # nothing that forces colours, as some CI does
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(done.stdout.rpartition("\n ")[2].split())


def within(modules: frozenset[str], packages: set[str]) -> set[str]:
    """Those of the packages that are there, themselves or by a part of them."""
    return {
        one
        for one in packages
        if any(name == one or name.startswith(f"{one}.") for name in modules)
    }


@pytest.mark.parametrize(
    "argv",
    [
        ["--version"],
        ["--help"],
        ["inspect", "--help"],
        ["worker", "--help"],
        ["spark", "--help"],
        ["spark", "work", "--help"],
    ],
    ids=" ".join,
)
def test_help_and_version_need_nothing_but_a_page(argv: list[str]) -> None:
    modules = loaded(COMMAND.format(argv=argv))
    assert not within(modules, HEAVY | ELSEWHERE | {"chasquimq.queue", "chasquimq.store"})
    assert "chasquimq.cli" in modules


def test_importing_the_package_loads_its_errors_and_no_more() -> None:
    modules = loaded("import chasquimq")
    assert not within(modules, HEAVY | ELSEWHERE | OTHER_ROOMS)
    ours = {one for one in modules if one.startswith("chasquimq.")}
    assert ours == {"chasquimq._alone", "chasquimq._version", "chasquimq.errors"}


def test_a_program_with_queues_and_workers_loads_no_other_rooms() -> None:
    modules = loaded("from chasquimq import Queue, Worker")
    assert not within(modules, ELSEWHERE | OTHER_ROOMS | {"typer", "rich", "redis", "zoneinfo"})
    prefix = "chasquimq.observe."
    observed = {one.removeprefix(prefix) for one in modules if one.startswith(prefix)}
    assert observed <= HAPPENINGS


@pytest.mark.parametrize("argv", [["inspect", "--no-such"], ["worker", "--no-such"]], ids=" ".join)
def test_a_command_loads_no_other_command(argv: list[str]) -> None:
    modules = loaded(COMMAND.format(argv=argv))
    others = {"chasquimq.cli.spark", "chasquimq.cli.doctor", "chasquimq.cli.add"}
    assert f"chasquimq.cli.{argv[0]}" in modules
    assert not within(modules, ELSEWHERE | others)


def test_what_spark_offers_is_told_without_spark() -> None:
    for argv in (["spark", "--no-such"], ["spark", "work", "--no-such"]):
        modules = loaded(COMMAND.format(argv=argv))
        assert "typer" in modules
        assert not within(modules, ELSEWHERE | {"chasquimq.spark"})
