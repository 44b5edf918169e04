"""An older commit of our own, installed beside the new one: what a change is measured against.

    .cache/bench/commit-<id>/tree    the commit's files, as git has them
    .cache/bench/commit-<id>/venv    ... installed, with the versions that our own lock pins

Its environment differs from ours in nothing but our code. Made once and kept; of all commits
only the last few that were used stay.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools.lock import names  # noqa: E402 - found from the root only
from tools.reference_env import make_once, run_installer  # noqa: E402

LOCKED = ROOT / "requirements" / "dev.txt"
REPORTS = "bench/reports"
SHORT = 12  # characters of a commit's id in a report
KEPT = 3  # commits; each takes about 90 MB
MEASURED = ("src", "bench", "requirements", f":!{REPORTS}")  # what makes figures what they are


class NoOldError(RuntimeError):
    """There is no commit to compare with; the message says why."""


def state(root: Path = ROOT) -> dict[str, Any]:
    """Which commit this tree is of, for a report; `dirty`: it has changes that no commit has."""
    try:
        changes = _git(root, "status", "--porcelain", "--", *MEASURED)
        return {
            "commit": _git(root, "rev-parse", f"--short={SHORT}", "HEAD"),
            "dirty": bool(changes),
        }
    except NoOldError:  # copied without its history
        return {}


def commit_of(name: str, root: Path = ROOT) -> str:
    """The full id of what somebody calls a commit."""
    try:
        return _git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except NoOldError as error:
        raise NoOldError(f"{name} is no commit that is here") from error


def title(commit: str, root: Path = ROOT) -> str:
    """A commit as one would call it to somebody."""
    return _git(root, "log", "-1", "--format=%h (%s)", commit)


def last_measured(root: Path = ROOT) -> str:
    """The commit that the newest quick report on record was measured with.

    A report that names none, or that was measured with changes, came in with the commit that
    recorded it: that is the nearest there is.
    """
    listed = _git(root, "ls-tree", "--name-only", "HEAD", f"{REPORTS}/").splitlines()
    reports = sorted(name for name in listed if name.endswith("-quick.json"))
    if not reports:
        raise NoOldError("no quick report is on record")
    newest = reports[-1]
    facts = json.loads(_git(root, "show", f"HEAD:{newest}"))["facts"]
    if "commit" in facts and not facts.get("dirty"):
        try:
            return commit_of(facts["commit"], root)
        except NoOldError:
            pass  # rewritten since
    return _git(root, "log", "-1", "--format=%H", "--", newest)


def interpreter(commit: str, root: Path = ROOT) -> Path:
    """The Python that has this commit installed. Made when it is missing."""

    def make(home: Path) -> None:
        shutil.rmtree(home, ignore_errors=True)
        export(commit, home / "tree", root)
        venv.create(home / "venv", with_pip=True)
        pip = [str(home / "venv" / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        pins = home / "pins"
        pins.write_text(names(LOCKED))  # with their hashes pip would want one of the tree, too
        run_installer(
            [*pip, "install", "--quiet", "--constraint", str(pins), *requirements(home / "tree")],
            "the old commit (--no-old leaves it out)",
        )

    versions = [sys.version, *requirements(Path("tree")), LOCKED.read_text()]
    home = make_once(f"bench/commit-{commit}", "\n".join(versions), make)
    (home / "stamp").touch()
    forget(home.parent, KEPT)
    return home / "venv" / "bin" / "python"


def requirements(tree: Path) -> list[str]:
    """It with the extras that a measured process of ours finds too, and what the child needs."""
    return [f"{tree}[uvloop,metrics,otel]", "redis"]


def export(commit: str, folder: Path, root: Path = ROOT) -> None:
    """The files of a commit, without its history."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit], cwd=root, capture_output=True, check=False
    )
    if packed.returncode:
        raise NoOldError(f"git has no files of {commit}: {packed.stderr.decode().strip()}")
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")


def forget(homes: Path, kept: int) -> None:
    """Remove all commits but those that were used last."""

    def used(home: Path) -> float:
        stamp = home / "stamp"
        return (stamp if stamp.is_file() else home).stat().st_mtime  # without: half made

    commits = [home for home in homes.glob("commit-*") if home.is_dir()]
    for home in sorted(commits, key=used, reverse=True)[kept:]:
        shutil.rmtree(home, ignore_errors=True)


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise NoOldError("git is not installed") from error
    if done.returncode:
        raise NoOldError(done.stderr.strip())
    return done.stdout.strip()
