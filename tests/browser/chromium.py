"""Find the browser: the private one that `make chromium` fetches, or one on PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.house.tree import ROOT

PRIVATE = ROOT / ".cache" / "chromium" / "bin" / "chromium"
ON_PATH = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")


def chromium() -> Path:
    """The program. Without it the test is skipped, and in CI it fails."""
    if found := find(PRIVATE):
        return found
    reason = "no Chromium below .cache/chromium nor on PATH"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; with CI=true it must be there", pytrace=False)
    pytest.skip(f"{reason}; `make chromium` fetches it")


def find(private: Path) -> Path | None:
    if os.access(private, os.X_OK):
        return private
    programs = (shutil.which(name) for name in ON_PATH)
    return next((Path(program) for program in programs if program), None)
