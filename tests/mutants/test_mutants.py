"""The table of mutants applies to today's sources, and each row names tests that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.mutants.run import ROOT, broken
from tests.mutants.table import MUTANTS, Mutant
from tests.servers import DIALECTS

SERVERS = " ".join(dialect.name for dialect in DIALECTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_still_applies(mutant: Mutant) -> None:
    broken(mutant)


def test_names_are_told_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 242


def test_every_row_names_tests_that_exist() -> None:
    """Which ones is frozen: see tests/frozen/mutants.txt. Here a file, a name or a `-k` that finds
    no test any more is told."""
    missing = [f"{mutant.name}: {what}" for mutant in MUTANTS for what in lacking(mutant.tests)]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    "tests",
    [
        ("tests/unit/test_nowhere.py",),
        ("tests/unit/test_policy.py::test_nowhere",),
        ("tests/unit/test_policy.py", "-k", "nowhere"),
        ("tests/unit/test_policy.py", "-k", "test or nowhere"),
        ("-k", "test"),
    ],
)
def test_a_row_whose_tests_are_gone_is_seen(tests: tuple[str, ...]) -> None:
    assert list(lacking(tests))


def lacking(tests: tuple[str, ...]) -> Iterator[str]:
    """The arguments for pytest that find nothing.

    A word of `-k` may be a part of a parameter's id, which only pytest knows: it is enough that
    each part of it stands in the file, or names a server. `make mutants` runs the rest.
    """
    end = tests.index("-k") if "-k" in tests else len(tests)
    paths, words = tests[:end], re.findall(r"\w+", " ".join(tests[end + 1 :]))
    gone = [path for path in paths if not _exists(path)]
    yield from gone or (() if paths else ["no file"])
    texts = SERVERS + "".join(map(_text, paths)) if words and not gone else ""
    for word in words:
        if word not in ("and", "or", "not") and word not in texts:
            yield f"-k {word}"


def _exists(path: str) -> bool:
    """A folder, a file, or a function of a file."""
    file, _, test = path.partition("::")
    if not (ROOT / file).exists():
        return False
    name = re.escape(test.partition("[")[0])
    return not test or bool(re.search(rf"^(async )?def {name}\(", _text(path), re.MULTILINE))


def _text(path: str) -> str:
    return (ROOT / path.partition("::")[0]).read_text()
