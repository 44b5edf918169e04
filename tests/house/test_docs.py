"""The documentation keeps its promises: links lead somewhere, every error code is explained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chasquimq import errors
from chasquimq.job import Reason
from tests.house.tree import ROOT, files, name

PAGES = [path for path in files(ROOT, ".md") if path.is_relative_to(ROOT / "docs")] + sorted(
    ROOT.glob("*.md")
)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert not [target for target in local if not (page.parent / target).exists()]


def test_every_error_and_its_code_are_explained() -> None:
    text = (ROOT / "docs/reference/errors.md").read_text()
    for kind in vars(errors).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, errors.ChasquiError)
            and kind.__name__[0] != "_"
        ):
            assert re.search(rf"\| {kind.code} \|.*`{kind.__name__}`", text)
    for reason in Reason:
        assert f"| {reason.code} | `{reason}` |" in text


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs/decisions"
    pages = {path.name for path in folder.glob("[0-9]*.md")}
    listed = set(re.findall(r"\((\d[^)]+\.md)\)", (folder / "README.md").read_text()))
    assert pages == listed
