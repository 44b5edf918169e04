"""The pre-commit hooks run programs, make targets and files that exist."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.tree import ROOT, missing_files, missing_targets, none_of

HOOKS = ROOT / ".pre-commit-config.yaml"


def hooks() -> list[dict[str, Any]]:
    [repository] = yaml.safe_load(HOOKS.read_text())["repos"]
    assert repository["repo"] == "local"
    return repository["hooks"]


def missing_in(entry: str) -> list[str]:
    """Programs, make targets and files that a hook's command needs and that do not exist."""
    program, *words = shlex.split(entry)
    tools = [f".venv/bin/{words[1]}"] if words[:1] == ["-m"] else []
    missing = [tool for tool in (program, *tools) if not is_installed(tool)]
    return missing + missing_targets(entry) + missing_files(entry)


def is_installed(program: str) -> bool:
    if program.startswith(".venv/bin/"):
        return Path(sys.executable).with_name(Path(program).name).exists()
    return shutil.which(program) is not None


def test_every_hook_runs_programs_and_files_that_exist() -> None:
    found = [f"{hook['id']}: {what}" for hook in hooks() for what in missing_in(hook["entry"])]
    none_of(found, len(hooks()))


def test_no_hook_is_fetched() -> None:
    assert {hook["language"] for hook in hooks()} == {"system"}


@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        (".venv/bin/nothing --x", [".venv/bin/nothing"]),
        ("no-such-program --x", ["no-such-program"]),
        ("make lint nothing-of-ours", ["nothing-of-ours"]),
        (
            ".venv/bin/python -m nothing tests/house/gone.py",
            [".venv/bin/nothing", "tests/house/gone.py"],
        ),
        (".venv/bin/python -m pytest tests/house/tree.py", []),
    ],
)
def test_a_missing_program_or_file_is_reported(entry: str, missing: list[str]) -> None:
    assert missing_in(entry) == missing


def test_pre_commit_can_read_its_configuration() -> None:
    program = Path(sys.executable).with_name("pre-commit")
    done = subprocess.run([program, "validate-config", HOOKS], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
