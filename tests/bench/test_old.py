"""Which commit is compared with, and where it lives. Nothing is installed here."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tools.reference_env

Bench = Callable[[str], ModuleType]
UNKNOWN = "0123456789" * 4


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.git("init", "--quiet")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
        done = subprocess.run(
            ["git", *who, *words], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, path: str, text: str) -> str:
        self.write(path, text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", f"write {path}")
        return self.git("rev-parse", "HEAD")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def old(bench: Bench) -> ModuleType:
    return bench("old")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def report(**facts: Any) -> str:
    return json.dumps({"facts": facts})


def test_the_newest_report_names_the_commit(old: ModuleType, repository: Repository) -> None:
    first = repository.commit("src/a.py", "1")
    second = repository.commit("src/a.py", "2")
    repository.commit("bench/reports/2026-01-02-quick.json", report(commit=second, dirty=False))
    repository.commit("bench/reports/2026-01-01-quick.json", report(commit=first, dirty=False))
    repository.commit("bench/reports/2026-01-03-quick-tuned.json", report(commit=first))
    repository.write("bench/reports/2026-01-04-quick.json", report(commit=first))  # not on record
    assert old.last_measured(repository.root) == second


@pytest.mark.parametrize(
    "facts", [{}, {"commit": "HEAD~1", "dirty": True}, {"commit": UNKNOWN, "dirty": False}]
)
def test_else_it_is_the_commit_that_recorded_the_report(
    old: ModuleType, repository: Repository, facts: dict[str, Any]
) -> None:
    repository.commit("src/a.py", "1")
    recorded = repository.commit("bench/reports/2026-01-02-quick.json", report(**facts))
    repository.commit("src/a.py", "2")
    assert old.last_measured(repository.root) == recorded


def test_without_a_report_there_is_none(old: ModuleType, repository: Repository) -> None:
    repository.commit("src/a.py", "1")
    with pytest.raises(old.NoOldError, match="no quick report"):
        old.last_measured(repository.root)


def test_a_commit_has_many_names(old: ModuleType, repository: Repository) -> None:
    first = repository.commit("src/a.py", "1")
    repository.commit("src/a.py", "2")
    assert old.commit_of("HEAD~1", repository.root) == first
    assert old.commit_of(first[:10], repository.root) == first
    assert old.title(first, repository.root).endswith("(write src/a.py)")
    for no_commit in ("nonsense", "--help", "HEAD:src", UNKNOWN):
        with pytest.raises(old.NoOldError, match=f"{no_commit} is no commit"):
            old.commit_of(no_commit, repository.root)


def test_a_tree_is_dirty_by_what_is_measured(old: ModuleType, repository: Repository) -> None:
    commit = repository.commit("src/a.py", "1")
    repository.write("bench/reports/2026-01-02-quick.json", report())
    repository.write("docs/page.md", "")
    assert old.state(repository.root) == {"commit": commit[:12], "dirty": False}
    repository.write("src/b.py", "")
    assert old.state(repository.root) == {"commit": commit[:12], "dirty": True}


def test_without_its_history_a_tree_has_no_state(old: ModuleType, tmp_path: Path) -> None:
    assert old.state(tmp_path) == {}


@pytest.fixture
def cache(old: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tools.reference_env, "ROOT", tmp_path)
    monkeypatch.setattr(old.venv, "create", lambda home, with_pip: None)
    return tmp_path / ".cache" / "bench"


def test_a_commit_is_made_once_and_anew_for_other_versions(
    old: ModuleType, repository: Repository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository.commit("src/a.py", "1")
    repository.commit("src/a.py", "2")
    home = cache / f"commit-{commit}"
    locked, commands = repository.root / "locked", []
    locked.write_text("redis==1 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(old, "LOCKED", locked)
    monkeypatch.setattr(old, "run_installer", lambda command, what: commands.append(command))

    for _ in range(2):
        python = old.interpreter(commit, repository.root)
        assert python == home / "venv" / "bin" / "python"
    assert (home / "tree" / "src" / "a.py").read_text() == "1"
    (command,) = commands
    assert command[0] == str(python)
    assert command[-2].startswith(f"{home / 'tree'}[")
    versions = Path(command[command.index("--constraint") + 1])
    assert versions.read_text() == "redis==1\n"

    locked.write_text("redis==2")
    old.interpreter(commit, repository.root)
    assert len(commands) == 2


def test_what_was_used_last_stays(old: ModuleType, tmp_path: Path) -> None:
    def home(name: str, age: float) -> None:
        stamp = tmp_path / name / "stamp"
        stamp.parent.mkdir()
        stamp.touch()
        os.utime(stamp, (1e9 - age, 1e9 - age))

    for age, name in enumerate(("commit-c", "commit-a", "commit-b", "commit-d", "celery")):
        home(name, age)
    (tmp_path / "commit-a.lock").touch()
    (tmp_path / "commit-half-made").mkdir()  # by another process, now
    old.forget(tmp_path, 3)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"commit-half-made", "commit-c", "commit-a", "commit-a.lock", "celery"}
