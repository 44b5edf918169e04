"""The documentation keeps its promises: links lead somewhere, every error code is explained."""

from __future__ import annotations

import re
from pathlib import Path

from chasquimq import errors
from chasquimq.job import Reason
from tests.house.tree import ROOT, Offence, files, lines_of, look_at, text_of

PAGES = [path for path in files(ROOT, ".md") if path.is_relative_to(ROOT / "docs")] + sorted(
    ROOT.glob("*.md")
)


def test_links_lead_somewhere() -> None:
    def astray(page: Path) -> list[Offence]:
        targets = lines_of(text_of(page), r"(?<=\]\()[^)#\s]+")
        local = [(line, target) for line, target in targets if "://" not in target]
        return [(line, target) for line, target in local if not (page.parent / target).exists()]

    look_at(PAGES, astray)


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
