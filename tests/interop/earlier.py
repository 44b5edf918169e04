"""An earlier version of ours, as it runs on while a new one is deployed. The git history has it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from functools import cache
from pathlib import Path

import pytest

from tests.house.tree import ROOT

COMMIT = "5e9bf04d5e309ede"  # the last one before modules moved
LACKING = "no git history"


@cache
def source() -> Path:
    """The folder to import that version from. Without the history the test is skipped."""
    folder = ROOT / ".cache" / f"earlier-{COMMIT}"
    if not (folder / "src").exists():
        command = ["git", "-C", str(ROOT), "archive", "--format=tar", COMMIT, "src"]
        found = subprocess.run(command, capture_output=True, check=False)
        if found.returncode:
            pytest.skip(f"{LACKING}: {found.stderr.decode(errors='replace').strip()}")
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(folder, filter="data")
    return folder / "src"
