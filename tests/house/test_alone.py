"""The package refuses to share its folder with the released program of the same import name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.house.tree import SOURCE


def imported(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import chasquimq; print(chasquimq.__file__)"]
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_it_imports_alone_and_refuses_company(tmp_path: Path) -> None:
    # Not what other processes are compiling just now: a file may be gone before it is copied.
    package = tmp_path / "chasquimq"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    alone = imported(tmp_path)
    assert alone.stdout.strip() == str(package / "__init__.py")
    (package / "_native.abi3.so").touch()
    beside = imported(tmp_path)
    assert beside.returncode == 1
    assert "pip uninstall chasquimq chasquimq-py" in beside.stderr
