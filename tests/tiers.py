"""Which tests run when. `TABLE` is the one place that says so.

- `make check` (`--tier check`): what needs no server. Property tests try a quarter of their
  examples.
- `make test` (`--tier test`, and pytest without the option): everything that guards a promise.
  Dialects differ in how they add, read and ack: what tests that runs on each of them, the rest on
  the first.
- `make test-all` (`--tier all`): everything, on each dialect.

A test that is marked `slow` waits for `make test-all`, wherever its file stands in the table. A
file, or a test in it, that is named on the command line runs whole, whatever the table says.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from tests.servers import DIALECTS, Dialect, dialects_of

ROOT = Path(__file__).parents[1]


class Tier(StrEnum):
    CHECK = "check"
    TEST = "test"
    ALL = "all"

    def runs(self, other: Tier) -> bool:
        """What belongs to `other` is part of it."""
        order = list(Tier)
        return order.index(other) <= order.index(self)


class On(StrEnum):
    """The dialects that `make test` runs a test on."""

    ONE = "one"
    EACH = "each"


class Row(NamedTuple):
    where: str  # a folder or a file; the longest that fits decides
    tier: Tier
    on: On = On.ONE


CHECK, TEST, ALL = Tier
ONE, EACH = On

TABLE = (
    Row("tests", TEST),
    # Neither a server nor a JVM.
    Row("tests/frozen", CHECK),
    Row("tests/frozen/test_endpoints.py", TEST),
    Row("tests/frozen/test_json.py", TEST),
    Row("tests/frozen/test_redis.py", TEST),
    Row("tests/frozen/test_signals.py", TEST),
    Row("tests/house", CHECK),
    Row("tests/mutants/test_mutants.py", CHECK),
    Row("tests/unit", CHECK),
    Row("tests/unit/spark/test_cut.py", TEST),
    Row("tests/house/test_tiers.py", TEST),  # it collects everything, several times
    Row("tests/vectors", CHECK),
    Row("tests/vectors/test_native_vectors.py", TEST, EACH),
    # Adding, reading and acking, and what begins anew when the server or its dialect changes.
    Row("tests/store/test_abandoned.py", TEST, EACH),
    Row("tests/store/test_add.py", TEST, EACH),
    Row("tests/store/test_dialect.py", TEST, EACH),
    Row("tests/store/test_finish.py", TEST, EACH),
    Row("tests/store/test_hold.py", TEST, EACH),
    Row("tests/store/test_lease.py", TEST, EACH),
    Row("tests/store/test_markers.py", TEST, EACH),
    Row("tests/store/test_pipe.py", TEST, EACH),
    Row("tests/store/test_read_and_ack.py", TEST, EACH),
    Row("tests/store/test_retry_and_bury.py", TEST, EACH),
    Row("tests/engine/test_acceptance.py", TEST, EACH),
    Row("tests/engine/test_add.py", TEST, EACH),
    Row("tests/engine/test_cuts.py", TEST, EACH),
    Row("tests/engine/test_faults.py", TEST, EACH),
    Row("tests/engine/test_own_ids.py", TEST, EACH),
    Row("tests/engine/test_replaced.py", TEST, EACH),
    Row("tests/engine/test_resend.py", TEST, EACH),
    Row("tests/engine/test_rights.py", TEST, EACH),
    Row("tests/engine/test_unique.py", TEST, EACH),
    Row("tests/engine/test_work.py", TEST, EACH),
    Row("tests/model", TEST, EACH),
    Row("tests/server", TEST, EACH),
    Row("tests/sync/test_queue.py", TEST, EACH),
    # Minutes of load, or JVMs of their own.
    Row("tests/bench", ALL),
    Row("tests/pipelines/test_work_cluster.py", ALL),
    Row("tests/soak/test_soak.py", ALL),
    Row("tests/spark/test_bench.py", ALL),
    Row("tests/spark/test_cluster.py", ALL),
    Row("tests/spark/test_connect.py", ALL),
    Row("tests/spark/test_install.py", ALL),
    Row("tests/spark/test_secrets.py", ALL),
    # Other faces of what shorter tests guard: pages, examples, commands, how help looks.
    Row("tests/browser/test_report.py", ALL),
    Row("tests/chaos/test_kit.py", ALL),
    Row("tests/cli/test_brief.py", ALL),
    Row("tests/cli/test_page.py", ALL),
    Row("tests/pipelines/test_dead_commands.py", ALL),
    Row("tests/pipelines/test_json.py", ALL),
    Row("tests/pipelines/test_lake_commands.py", ALL),
    Row("tests/pipelines/test_report.py", ALL),
    Row("tests/pipelines/test_triage.py", ALL),
    Row("tests/pipelines/test_users.py", ALL),
    Row("tests/pipelines/test_window.py", ALL),
    Row("tests/spark/test_examples.py", ALL),
    Row("tests/spark/test_pages.py", ALL),
)


def row_of(path: str) -> Row:
    """What the table says about a file, by its path in the project."""
    fits = [row for row in TABLE if f"{path}/".startswith(f"{row.where}/")]
    return max(fits, key=lambda row: len(row.where))


def examples(number: int) -> int:
    """How many examples a property test tries that would try `number`."""
    return max(number // 4, 5) if _tier is CHECK else number


_tier = TEST


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier",
        choices=[tier.value for tier in Tier],
        default=TEST.value,
        help="which tests to run (tests/tiers.py): check, test (the default) or all",
    )


def pytest_configure(config: pytest.Config) -> None:
    global _tier
    _tier = Tier(config.getoption("tier"))
    # Machines that run tests are busy: how long an example takes says nothing.
    settings.register_profile("tests", deadline=None, max_examples=examples(100))
    settings.load_profile("tests")


def pytest_report_header(config: pytest.Config) -> str:
    rest = "" if _tier is ALL else "; `make test-all` runs the rest"
    return f"tier: {_tier.value} (tests/tiers.py){rest}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Tens of thousands of objects that stay: looking through them again and again takes longer
    than making them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of later tiers are not even read. (Nobody asks about a file that is named.)"""
    if collection_path.suffix != ".py":
        return None
    return True if not _tier.runs(row_of(_name(collection_path)).tier) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    item = metafunc.definition
    whole = item.session.isinitpath(item.path)
    chosen = [one for one in DIALECTS if whole or runs_on(one, row_of(_name(item.path)))]
    given = {name for mark in item.iter_markers("parametrize") for name in _names(mark)}
    for fixture, scope in (("dialect_server", "session"), ("own_server", "function")):
        if fixture in metafunc.fixturenames and fixture not in given:
            ids = [one.name for one in chosen]
            metafunc.parametrize(fixture, chosen, ids=ids, indirect=True, scope=scope)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = [item for item in items if _is_chosen(item)]
    if len(chosen) < len(items):
        kept = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = chosen


def _is_chosen(item: pytest.Item) -> bool:
    if _tier is ALL or item.session.isinitpath(item.path):
        return True
    if item.get_closest_marker("slow"):
        return False
    row = row_of(_name(item.path))
    return all(runs_on(one, row) for one in dialects_of(item))


def runs_on(dialect: Dialect, row: Row) -> bool:
    return _tier is ALL or row.on is EACH or dialect is DIALECTS[0]


def _names(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs["argnames"]
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()
