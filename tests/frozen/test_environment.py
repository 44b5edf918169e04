"""Every environment variable that the product reads or sets is explained to users."""

from __future__ import annotations

import ast
import re

import pytest

from tests.frozen.lists import lines_of
from tests.frozen.subjects.environment import SOURCE, uses_in
from tests.house.tree import ROOT, files, none_of, text_of

# Not for users to set: who sets them, and what for.
BY_OTHERS = {
    "PATH": "the system: where programs are",
    "PYSPARK_GATEWAY_PORT": "spark-submit: it has started Java already",
    "TERM": "the terminal: what it can show",
    "_CHASQUI_COMPLETE": "the completion that --install-completion installs",
}
PAGES = [one for one in files(ROOT / "docs", ".md") if "decisions" not in one.parts]


def test_each_is_documented() -> None:
    names = {line.split(" ")[0] for line in lines_of("environment")}
    text = "\n".join(text_of(page) for page in PAGES)
    missing = [
        f"{name}: explain it in docs/, beside `CHASQUI_REDIS_URL` or where it matters"
        for name in sorted(names - BY_OTHERS.keys())
        if not re.search(rf"\b{name}\b", text)
    ]
    none_of(missing, len(names))
    assert BY_OTHERS.keys() <= names


def test_none_is_read_in_a_way_that_is_not_seen() -> None:
    """The list is complete as long as the environment is used in the forms that it knows."""
    forms = r"\bos\.(getenv|getenvb|environb|putenv|unsetenv)\b|\benvvar\b|from os import.*environ"
    looked = files(SOURCE, ".py")
    found = [f"{path}: {one}" for path in looked for one in re.findall(forms, text_of(path))]
    none_of(found, len(looked))


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        ("os.environ.get('A')", [("A", "read")]),
        ("os.environ['A']", [("A", "read")]),
        ("os.environ['A'] = 'b'", [("A", "set")]),
        ("os.environ.setdefault('A', 'b')", [("A", "set")]),
        ("'A' in os.environ", [("A", "read")]),
        ("'A' not in environment", [("A", "read")]),
        ("os.getenv('A')", [("A", "read")]),
        ("os.environ.get(URL_VARIABLE)", [("CHASQUI_REDIS_URL", "read")]),
        ("any(one in os.environ for one in ('A', 'B'))", [("A", "read"), ("B", "read")]),
    ],
)
def test_each_way_to_use_one_is_seen(line: str, uses: list[tuple[str, str]]) -> None:
    assert list(uses_in(ast.parse(line))) == uses


def test_a_name_that_cannot_be_told_is_an_error() -> None:
    with pytest.raises(ValueError, match="by its name or by a constant"):
        list(uses_in(ast.parse("os.environ.get(some_name)")))
