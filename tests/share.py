"""How a run with several processes (`-n 3`) shares out its tests.

1. The tests of a file stay together: one process runs them, in their order.
2. So do all tests of the folders in `ONE_BY_ONE`. They measure leases of half a second in real
   processes, or load a machine as much as they can: two of them at once would disturb each other.
3. So do those of each folder in `TOGETHER`: they share a thing that takes seconds to start, a JVM.
4. Folders whose tests take long come first, so that in the end no process waits for another.
5. Who measures leases goes before: a process that runs anything else, and what it starts, is nice
   to the others. Most tests wait most of the time and are none the slower.

Each process has servers of its own, so tests share nothing but the machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from xdist.scheduler import LoadScopeScheduling

MEASURES = "tests/chaos"
ONE_BY_ONE = (MEASURES, "tests/soak")
TOGETHER = ("tests/spark", "tests/pipelines")
LONG = tuple(
    f"tests/{one}"
    for one in (
        "pipelines",
        "spark",
        "ha",
        "model",
        "browser",
        "bench",
        "interop",
        "engine",
        "security",
        "fuzz",
        "cli",
        "sync",
        "examples",
        "server",
        "observe",
        "store",
    )
)
NICE = 10


def share_of(nodeid: str) -> str:
    """What a test goes with: its file, its folder, or the folders that run one by one."""
    for folder in TOGETHER:
        if _is_in(nodeid, folder):
            return folder
    return "one by one" if _is_in(nodeid, *ONE_BY_ONE) else nodeid.partition("::")[0]


def rank(nodeid: str) -> int:
    """The place of its folder in the order of the run."""
    order = (*ONE_BY_ONE, *LONG)
    places = [place for place, folder in enumerate(order) if _is_in(nodeid, folder)]
    return places[0] if places else len(order)


def _is_in(nodeid: str, *folders: str) -> bool:
    return nodeid.startswith(tuple(f"{folder}/" for folder in folders))


def _is_one_of_several(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(trylast=True)  # after pytest has put the tests of a dialect together
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _is_one_of_several(config):
        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(tryfirst=True)  # before its servers are started
def pytest_runtest_setup(item: pytest.Item) -> None:
    if _is_one_of_several(item.config) and not _is_in(item.nodeid, MEASURES):
        os.nice(max(NICE - os.nice(0), 0))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    if config.getoption("dist") != "load":
        return None  # asked for another way, by name
    from xdist.scheduler import LoadScopeScheduling

    class Shares(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return share_of(nodeid)

    config.option.loadscopereorder = False  # the order is that of the tests
    return Shares(config, log)
