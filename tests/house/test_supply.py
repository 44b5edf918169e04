"""What we install, and what we hand out: pinned by hash, and the same bytes each time."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import ROOT

FILES = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"([\w.-]+)==([\w.]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")
PARTS = ("src", "docs", "examples", "requirements", "tools", "LICENSE", "README.md", "Makefile")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_version_has_the_hashes_of_its_files_and_nothing_else_stands_there(
    path: Path,
) -> None:
    head, _, rest = path.read_text().partition("\n")
    assert head.startswith("# ") and PIN.match(rest)
    assert PIN.sub("", rest) == ""


def test_what_builds_and_what_is_developed_with_are_apart() -> None:
    build, dev = ({pin[0] for pin in PIN.findall(text_of(name))} for name in ("build", "dev"))
    assert not build & dev and "hatchling" in build and "msgspec" in dev


def text_of(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


@pytest.mark.expected_skip("the lock is")
@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64") or sys.version_info[:2] > (3, 13),
    reason="the lock is that of Python 3.11 to 3.13 on Linux",
)
def test_what_is_installed_is_what_is_pinned() -> None:
    wrong = {
        name: importlib.metadata.version(name)
        for name, version, _ in PIN.findall(text_of("build") + text_of("dev"))
        if importlib.metadata.version(name) != version
    }
    assert not wrong, "make venv"


# -- what we hand out ------------------------------------------------------------------------------


def build(folder: Path, moment: int) -> dict[str, bytes]:
    """Wheel and source archive of a copy of this tree whose files are as old as that."""
    for part in PARTS:
        place = ROOT / part
        if place.is_dir():  # not what other processes are compiling just now: it comes and goes
            shutil.copytree(place, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(place, folder / part)
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, folder / name)
    for path in folder.rglob("*"):
        os.utime(path, (moment, moment))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", "made"],
        cwd=folder,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"},
        check=True,
        capture_output=True,
    )
    return {path.name: path.read_bytes() for path in (folder / "made").iterdir()}


def test_two_builds_are_the_same_byte_by_byte_and_hold_only_what_is_ours(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    made = []
    for name, moment in (("one", 1_600_000_000), ("another", 1_750_000_000)):
        (tmp_path / name).mkdir()
        made.append(build(tmp_path / name, moment))
    first, second = ({name: digest(data) for name, data in one.items()} for one in made)
    assert first == second and len(first) == 2
    [wheel] = (tmp_path / "one/made").glob("*.whl")
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "chasquimq",
        "pyspark_chasqui",
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# -- the audit -------------------------------------------------------------------------------------

ONE = {"name": "a", "version": "1", "vulns": []}
BUG = {"id": "X-1", "fix_versions": ["2"]}


@pytest.mark.parametrize(
    ("told", "code", "words"),
    [
        ([ONE], 0, "1 versions, no known vulnerability"),
        ([ONE, {"name": "b", "skip_reason": "not found"}], 3, "1 of 2 asked about"),
        ([{**ONE, "vulns": [BUG]}, {"name": "b", "skip_reason": "?"}], 1, "a 1: X-1, fixed in 2"),
    ],
)
def test_what_could_not_be_asked_about_is_no_success(
    told: list[dict[str, object]], code: int, words: str, tmp_path: Path
) -> None:
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'dependencies': told})}'\n")
    program.chmod(0o755)
    files = ["--with", str(program), str(ROOT / "requirements/build.txt")]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/audit.py"), *files], capture_output=True, check=False
    )
    assert (done.returncode, words in done.stdout.decode()) == (code, True)


def test_where_nobody_could_be_asked_old_versions_are_named(tmp_path: Path) -> None:
    skipped = {"dependencies": [{"name": "one", "skip_reason": "?"}]}
    there = {
        "One_x": "1.0",
        "two": "0.9",
        "three": "3",
        "other": "1.0",
    }  # not the two that is pinned
    installed = [{"name": name, "version": version} for name, version in there.items()]
    old = [{**one, "latest_version": "2.1"} for one in installed if one["name"] != "three"]
    by_word = f"*--outdated*) echo '{json.dumps(old)}';; *) echo '{json.dumps(installed)}';;"
    asked = f"case $* in {by_word} esac"
    for name, says in (("pip-audit", f"echo '{json.dumps(skipped)}'"), ("python", asked)):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{says}\n")
        program.chmod(0o755)
    pins = tmp_path / "pins.txt"
    pins.write_text("one-x==1.0 \\\n    --hash=sha256:0\ntwo==1.0\nthree==3\n")
    command = [str(ROOT / "tools/audit.py"), "--with", str(tmp_path / "pip-audit")]
    command += ["--python", str(tmp_path / "python"), str(pins)]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "1 of 3 are the newest that the index has, but: one-x 1.0 (2.1)" in done.stdout
    assert "not looked up: two" in done.stdout
