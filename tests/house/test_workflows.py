"""Workflows run existing commands on all supported Python versions, with the fewest rights."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.tree import (
    ROOT,
    Offence,
    files,
    lines_of,
    look_at,
    missing_files,
    missing_targets,
    none_of,
    text_of,
)

WORKFLOWS = files(ROOT / ".github/workflows", ".yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

USES = r"uses: (\S+)(?: # v[\d.]+)?"
BY_HASH = re.compile(r"[\w./-]+@[0-9a-f]{40}")
OURS = "$/"  # before a workflow of this repository


@cache
def workflow(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text())


# -- Python versions -------------------------------------------------------------------------------


def supported() -> list[str]:
    heads = (
        re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", one)
        for one in PROJECT["classifiers"]
    )
    return [head[1] for head in heads if head]


def test_requires_python_is_the_oldest_classifier() -> None:
    assert PROJECT["requires-python"] == f">={supported()[0]}"


def test_every_change_is_checked_and_tested_on_every_supported_version() -> None:
    jobs = workflow("tests.yml")["jobs"]
    assert jobs["check"]["strategy"]["matrix"] == {"python": supported()}
    rows = jobs["test"]["strategy"]["matrix"]["include"]
    assert [row["python"] for row in rows] == supported()
    for row in rows:
        assert row["image"].startswith(f"python:{row['python']}.")


def test_other_jobs_run_on_the_oldest_version_whose_files_are_pinned() -> None:
    first = supported()[0]

    def others(path: Path) -> Iterator[Offence]:
        if path.name != "tests.yml":
            for line, found in lines_of(
                text_of(path), r"(python-version: \"|image: python:)3\.\d+"
            ):
                if not found.endswith(first):
                    yield line, found

    look_at(WORKFLOWS, others)


# -- commands, actions and images ------------------------------------------------------------------


def commands() -> Iterator[tuple[str, str]]:
    """Every command of every workflow: file and job, and the command."""
    for path in WORKFLOWS:
        for name, job in workflow(path.name)["jobs"].items():
            for step in job.get("steps", ()):
                if "run" in step:
                    yield f"{path.name}, {name}", step["run"]


def test_workflows_run_existing_make_targets() -> None:
    told = [f"{where}: make {name}" for where, text in commands() for name in missing_targets(text)]
    none_of(told, len(WORKFLOWS))


def test_workflows_name_existing_files() -> None:
    told = [f"{where}: {name}" for where, text in commands() for name in missing_files(text)]
    none_of(told, len(WORKFLOWS))


def test_every_action_is_pinned_to_one_commit() -> None:
    commits: dict[str, str] = {}

    def loose(path: Path) -> Iterator[Offence]:
        for line, found in lines_of(text_of(path), USES):
            _, name, *version = found.split(maxsplit=2)
            if name.startswith(OURS):
                if not (ROOT / name.removeprefix(OURS)).is_file():
                    yield line, f"{name} does not exist"
            elif not (BY_HASH.fullmatch(name) and version):
                yield line, f"{found}: pin a full commit, with its version as a comment"
            elif commits.setdefault(name.partition("@")[0], found) != found:
                yield line, f"{found}: pinned differently elsewhere"

    look_at(WORKFLOWS, loose)


def test_every_image_is_pinned_to_one_digest() -> None:
    digests: dict[str, str] = {}

    def loose(path: Path) -> Iterator[Offence]:
        for line, found in lines_of(text_of(path), r"image: (?!\$)\S+"):
            tag, _, digest = found.partition("@")
            if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
                yield line, f"{found}: pin its digest"
            elif digests.setdefault(tag, digest) != digest:
                yield line, f"{found}: pinned differently elsewhere"

    look_at(WORKFLOWS, loose)


# -- rights ----------------------------------------------------------------------------------------

# Jobs with write permissions. All others may only read.
WRITES = {
    ("release.yml", "publish"): {"id-token", "attestations"},
    ("release.yml", "announce"): {"contents"},
}


def test_only_these_jobs_may_write() -> None:
    told = {}
    for path in WORKFLOWS:
        assert workflow(path.name)["permissions"] == {}
        for name, job in workflow(path.name)["jobs"].items():
            rights = job["permissions"]
            assert set(rights.values()) <= {"read", "write"}
            if written := {right for right, how in rights.items() if how == "write"}:
                told[path.name, name] = written
    assert told == WRITES


def test_jobs_that_may_write_run_no_code_of_the_repository() -> None:
    for file, name in WRITES:
        assert "checkout" not in yaml.safe_dump(workflow(file)["jobs"][name])


def test_a_release_uses_no_cache() -> None:
    for file in ("release.yml", "test-all.yml"):
        for job in workflow(file)["jobs"].values():
            assert "cache" not in yaml.safe_dump(job)


# -- the linters -----------------------------------------------------------------------------------

GOOD = """
name: greet
on: push
permissions: {}
concurrency:
  group: greet
  cancel-in-progress: true
jobs:
  greet:
    name: greet
    runs-on: ubuntu-24.04
    timeout-minutes: 1
    steps:
      - run: echo hello
"""


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("", "", "validation done"),
        ("hello", "${{ github.event.head_commit.message }}", "error[template-injection]"),
        ("run: echo hello", "uses: actions/checkout@v7", "error[unpinned-uses]"),
        ("permissions: {}", "permissions: write-all", "error[excessive-permissions]"),
        ("timeout-minutes", "timeout", "Schema validation errors"),
        ("runs-on", "runs_on", "fatal"),
    ],
)
def test_make_lint_workflows_rejects_a_bad_workflow(
    good: str, bad: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "one.yml").write_text(GOOD.replace(good, bad) if good else GOOD)
    done = subprocess.run(
        [
            *("make", "--old-file", ".venv/.installed", "lint-workflows"),
            *(f"WORKFLOWS={tmp_path}", f"BIN={Path(sys.executable).parent}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    told = done.stdout + done.stderr
    assert (done.returncode == 0) == (not good), told
    assert says in told
