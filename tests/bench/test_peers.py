"""The book of peers names what there is, and a peer's home is made once."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from tools import reference_env

PEERS = Path(__file__).parents[2] / "bench" / "peers"
EXACT = re.compile(r"[\w.-]+(\[\w+\])?(==|@)\d[\w.]*")


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(PEERS)
    return importlib.import_module("book")


def test_the_book_names_programmes_versions_and_kinds_that_there_are(book: Any) -> None:
    assert len({peer.name for peer in book.PEERS}) == len(book.PEERS)
    for peer in book.PEERS:
        assert (PEERS / peer.child).is_file(), peer.name
        assert all(EXACT.fullmatch(package) for package in peer.packages), peer.name
        assert peer.jobs.keys() <= book.MEASURED.keys(), peer.name
        assert peer.guarantee and peer.how, peer.name


class Maker:
    def __init__(self) -> None:
        self.calls = 0
        self.fails = False

    def __call__(self, home: Path) -> None:
        self.calls += 1
        home.mkdir(parents=True, exist_ok=True)
        if self.fails:
            raise reference_env.NotInstallableError("no network")


@pytest.fixture
def maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Maker:
    monkeypatch.setattr(reference_env, "ROOT", tmp_path)
    return Maker()


def test_a_home_is_made_once_and_again_when_its_description_changes(
    maker: Maker, tmp_path: Path
) -> None:
    for description, calls in [("one", 1), ("one", 1), ("two", 2), ("two", 2)]:
        home = reference_env.make_once("bench/queue", description, maker)
        assert home == tmp_path / ".cache" / "bench" / "queue"
        assert maker.calls == calls


def test_a_home_that_is_half_made_is_not_taken_for_whole(maker: Maker) -> None:
    reference_env.make_once("queue", "one", maker)
    maker.fails = True
    with pytest.raises(reference_env.NotInstallableError):
        reference_env.make_once("queue", "two", maker)
    with pytest.raises(reference_env.NotInstallableError):
        reference_env.make_once("queue", "one", maker)
