"""Write the exact versions that development installs, each with the hashes of its files.

    lock.py [--keep] <folder>      <folder>/build.txt, dev.txt and audit.txt
    lock.py --names <file>         only names and versions of such a file, as constraints for pip

`build.txt` is what builds packages, `dev.txt` all that `.[dev]` needs, `audit.txt` what `make
audit` runs, apart from the others. Versions are today's newest within the bounds, or with --keep
those that the files name already. Which package index is asked is the machine's own setting, and
the files do not name it. Hashes are those of all files that the index has of a version for Linux
and macOS and for Python 3.11 to 3.13, so that pip may choose.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# What an editable install needs beside the build system, and packages that come as sources only.
BUILDERS = ("editables", "setuptools", "wheel")
AUDITORS = ("pip-audit>=2.9,<3",)
WANTED = re.compile(
    r"\.tar\.gz$|-none-any\.whl$|"
    r"-(cp31[1-3]|abi3|none)-(manylinux[\w.]*(x86_64|aarch64)|macosx[\w.]*)\.whl$"
)
LINK = re.compile(r"""<a [^>]*href=["']([^"']*)["'][^>]*>""")
PINNED = re.compile(r"^([\w.-]+)==([^\s\\]+)", re.MULTILINE)
HEAD = "# Exact versions and hashes of what {} needs. Written by `make lock`; do not edit.\n"


def pip(*args: str) -> str:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *args]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def resolved(wanted: Iterable[str], constraints: Path | None) -> dict[str, tuple[str, str]]:
    """Name to version and the hash of the file that pip would take here."""
    bound = ("-c", str(constraints)) if constraints else ()
    flags = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-")
    report = json.loads(pip("install", *flags, *bound, *wanted))
    found: dict[str, tuple[str, str]] = {}
    for one in report["install"]:
        archive = one["download_info"].get("archive_info")
        if archive is not None:  # else it is this project itself
            metadata = one["metadata"]
            found[metadata["name"]] = metadata["version"], archive["hashes"]["sha256"]
    return found


def index() -> str:
    told = os.environ.get("PIP_INDEX_URL")
    for line in pip("config", "list").splitlines():
        name, _, value = line.partition("=")
        if name.rpartition(".")[2] == "index-url":
            told = told or value.strip("'\"")
    if told:
        return told.rstrip("/")
    from pip._internal.models.index import PyPI  # its default is pip's to know

    return PyPI.simple_url.rstrip("/")


def files(page: str) -> Iterator[tuple[str, str]]:
    """File names and SHA-256 of a project's page, in either form that an index may answer in."""
    try:
        told: dict[str, Any] = json.loads(page)
    except ValueError:
        for link in LINK.findall(page):
            path, _, fragment = html.unescape(link).partition("#sha256=")
            if fragment:
                yield urllib.parse.unquote(path.rpartition("/")[2]), fragment
        return
    for one in told["files"]:
        if "sha256" in one["hashes"]:
            yield one["filename"], one["hashes"]["sha256"]


def hashes(place: str, name: str, version: str) -> set[str]:
    """Of all files of this version that may be of use; none where the index does not tell."""
    plain = re.sub(r"[-_.]+", "-", name).lower()
    accept = {"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.2"}
    request = urllib.request.Request(f"{place}/{plain}/", headers=accept)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            page = answer.read().decode()
    except OSError as error:
        print(f"{name}: only the file for this machine ({error})", file=sys.stderr)
        return set()
    front = re.compile(rf"{plain.replace('-', '[-_.]+')}-{re.escape(version)}[-.]", re.IGNORECASE)
    return {digest for file, digest in files(page) if front.match(file) and WANTED.search(file)}


def lock(output: Path, what: str, found: dict[str, tuple[str, str]], place: str) -> None:
    lines = [HEAD.format(what)]
    for name, (version, own) in sorted(found.items(), key=lambda item: item[0].lower()):
        digests = sorted({own, *hashes(place, name, version)})
        parts = [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in digests)]
        lines.append(" \\\n    ".join(parts) + "\n")
    output.write_text("".join(lines))
    print(f"wrote {output.name}: {len(found)} versions")


def names(file: Path) -> str:
    return "".join(f"{name}=={version}\n" for name, version in PINNED.findall(file.read_text()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write exact versions with their hashes.")
    parser.add_argument("place", type=Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--names", action="store_true")
    options = parser.parse_args()
    if options.names:
        print(names(options.place), end="")
        return
    build, dev, audit = (options.place / f"{name}.txt" for name in ("build", "dev", "audit"))
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    with tempfile.TemporaryDirectory() as folder:
        bound = None
        if options.keep:
            bound = Path(folder, "constraints.txt")
            bound.write_text("".join(names(file) for file in (build, dev, audit) if file.exists()))
        builders = resolved((*system, *BUILDERS), bound)
        developers = resolved((f"{ROOT}[dev]",), bound)
        auditors = resolved(AUDITORS, bound)
    place = index()
    lock(build, "building", builders, place)
    lock(dev, "development", {n: v for n, v in developers.items() if n not in builders}, place)
    lock(audit, "`make audit`", auditors, place)


if __name__ == "__main__":
    main()
