"""Ask whether anything we develop with is known to be vulnerable, or list all of it.

    audit.py --with <pip-audit> <requirements>...   exit 0: nothing is known; 1: something is
    audit.py --sbom <output> <requirements>...      a CycloneDX bill of materials, without asking

pip-audit asks the service that its maintainers chose. Where that cannot be reached, it leaves out
what it could not ask about and calls that a success; here that is exit code 3, and said plainly.
What can be said without it: which versions are not the newest that the package index has. The rest
lacks no fix that has been published, though it may have a fault that nobody has mended.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PINNED = re.compile(r"^([\w.-]+)==([^\s\\]+)", re.MULTILINE)
OK, VULNERABLE, UNKNOWN = 0, 1, 3


def plain(name: str) -> str:
    """A project's name as all of its spellings are meant."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listed(files: list[str]) -> dict[str, Any]:
    """Names and versions of what the files pin, in CycloneDX's words."""
    found = {pin for file in files for pin in PINNED.findall(Path(file).read_text())}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "components": [
            {
                "type": "library",
                "name": name,
                "version": version,
                "purl": f"pkg:pypi/{plain(name)}@{version}",
            }
            for name, version in sorted(found)
        ],
    }


def ask(program: str, files: list[str]) -> str:
    named = [word for file in files for word in ("-r", file)]
    flags = ["--disable-pip", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run([program, *flags, *named], capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"the audit could not be made: {last}", file=sys.stderr)
        raise SystemExit(UNKNOWN)
    return done.stdout


def judge(told: dict[str, Any]) -> tuple[int, list[str]]:
    """An exit code, and what to say."""
    every = told["dependencies"]
    asked = [one for one in every if "skip_reason" not in one]
    found = [
        f"{one['name']} {one['version']}: {bug['id']}, fixed in {', '.join(bug['fix_versions'])}"
        for one in asked
        for bug in one["vulns"]
    ]
    if found:
        return VULNERABLE, found
    if len(asked) < len(every):
        left = len(every) - len(asked)
        why = "nothing is known about them: the service could not be asked"
        return UNKNOWN, [f"{len(asked)} of {len(every)} asked about; of the other {left} {why}"]
    return OK, [f"{len(every)} versions, no known vulnerability"]


def held_back(python: str, files: list[str]) -> list[str]:
    """Which of what the files pin, and that python has, is not the newest there is."""
    pinned = {plain(one["name"]): one["version"] for one in listed(files)["components"]}
    told = []
    for more in ([], ["--outdated"]):
        command = [python, "-m", "pip", "list", *more, "--format", "json", "--no-input"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return ["the package index could not be asked either"]
        every = {plain(one["name"]): one for one in json.loads(done.stdout)}
        told.append(
            {name: one for name, one in every.items() if pinned.get(name) == one["version"]}
        )
    there, old = told
    behind = [f"{name} {one['version']} ({one['latest_version']})" for name, one in old.items()]
    but = f", but: {', '.join(behind)}" if behind else ""
    lines = [f"{len(there) - len(old)} of {len(pinned)} are the newest that the index has{but}"]
    if absent := sorted({*pinned} - {*there}):
        lines.append(f"not installed here, so not looked up: {', '.join(absent)}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Look for known vulnerabilities.")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--sbom", type=Path, metavar="OUTPUT")
    how.add_argument("--with", dest="program", metavar="PIP_AUDIT")
    parser.add_argument("--python", help="that has the versions installed")
    parser.add_argument("files", nargs="+")
    options = parser.parse_args()
    if options.sbom:
        options.sbom.parent.mkdir(parents=True, exist_ok=True)
        options.sbom.write_text(json.dumps(listed(options.files), indent=2) + "\n")
        print(f"wrote {options.sbom}")
        return OK
    code, lines = judge(json.loads(ask(options.program, options.files)))
    if code == UNKNOWN and options.python:
        lines += held_back(options.python, options.files)
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
