"""Where there is no browser: tests are left out, and in CI they fail; fetching one says why."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.house.tree import ROOT


@pytest.mark.parametrize(
    ("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)]
)
def test_no_browser_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chromium, "PRIVATE", tmp_path / "chromium")
    both = (pytest.skip.Exception, pytest.fail.Exception)
    with pytest.raises(both, match="no Chromium below") as told:
        chromium.chromium()
    assert told.type is outcome


def test_it_leaves_nothing_where_it_was_started(tmp_path: Path) -> None:
    page = ["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "data:text/html,<p>here"]
    done = subprocess.run([chromium.chromium(), *page], cwd=tmp_path, capture_output=True)
    assert b"here" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_one_on_path_will_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "chromium-browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.find(tmp_path / "private") == program


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_a_machine_that_cannot_fetch_one_says_so(tmp_path: Path, ci: str, code: int) -> None:
    done = subprocess.run(
        [str(shutil.which("bash")), ROOT / "tools" / "fetch_chromium.sh", tmp_path / "chromium"],
        env={"PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("no private Chromium: this machine has no apt-get;")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "chromium").exists()
