"""Count the code of the project: lines without blanks, comments and docstrings.

    python tools/size.py                  a table of the packages: lines and files, the total last
    python tools/size.py --files          each file, largest first
    python tools/size.py --long           functions over 60 lines and files over 800
    python tools/size.py --since main~5   how many lines each package won or lost since that commit
    python tools/size.py --json           the same as JSON

A line counts if it holds a part of a statement. A string that spans five lines counts five, unless
it is a docstring. The lines of a function are those of its code, its decorators included.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
FOLDER = "src"
MAX_FUNCTION = 60
MAX_FILE = 800
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Long:
    """A function or a file that is longer than the guide says."""

    place: str
    lines: int


def code_lines(source: str) -> set[int]:
    """The numbers of the lines that hold code."""
    docstrings = set(_docstring_lines(ast.parse(source)))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.start[0] in docstrings
        if token.type not in NOT_CODE and not is_docstring:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | Function):
            continue
        if ast.get_docstring(node) is not None:
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def long_functions(source: str, most: int = MAX_FUNCTION) -> Iterator[Long]:
    """Functions and methods with more code lines than that, by their dotted names."""
    lines = code_lines(source)

    def below(node: ast.AST, path: tuple[str, ...]) -> Iterator[Long]:
        for child in ast.iter_child_nodes(node):
            inside = path
            if isinstance(child, ast.ClassDef | Function):
                inside = (*path, child.name)
            if isinstance(child, Function):
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                count = len(lines.intersection(range(first, (child.end_lineno or first) + 1)))
                if count > most:
                    yield Long(".".join(inside), count)
            yield from below(child, inside)

    yield from below(ast.parse(source), ())


def sources(commit: str | None = None) -> dict[str, str]:
    """Path and text of each Python file below src/, in the working tree or in a commit."""
    if commit is None:
        found = sorted((ROOT / FOLDER).rglob("*.py"))
        return {path.relative_to(ROOT).as_posix(): path.read_text() for path in found}
    listed = _git("ls-tree", "-r", "--name-only", commit, "--", FOLDER).splitlines()
    return {path: _git("show", f"{commit}:{path}") for path in listed if path.endswith(".py")}


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout


def count(files: dict[str, str]) -> dict[str, int]:
    """Code lines of each file."""
    return {path: len(code_lines(source)) for path, source in files.items()}


def package_of(path: str) -> str:
    """The folder of a file, below src/."""
    return PurePosixPath(path).parent.relative_to(FOLDER).as_posix()


def by_package(files: dict[str, int]) -> dict[str, int]:
    """Code lines of each folder, without those of the folders below it."""
    packages: Counter[str] = Counter()
    for path, lines in files.items():
        packages[package_of(path)] += lines
    return dict(sorted(packages.items()))


def difference(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    """What changed, where something did."""
    names = sorted(now.keys() | before.keys())
    changes = {name: now.get(name, 0) - before.get(name, 0) for name in names}
    return {name: change for name, change in changes.items() if change}


def too_long(files: dict[str, str]) -> list[Long]:
    """Functions and files that are longer than the guides say, longest first."""
    found = [Long(path, lines) for path, lines in count(files).items() if lines > MAX_FILE]
    for path, source in files.items():
        found += [Long(f"{path}:{one.place}", one.lines) for one in long_functions(source)]
    return sorted(found, key=lambda one: (-one.lines, one.place))


def table(rows: dict[str, int], files: Counter[str] | None = None, *, sign: str = "") -> None:
    """One line for each, and the total as the last."""
    width = max([len(name) for name in rows] + [len("total")])
    many = (lambda name: f"  {files[name]:>5} files") if files else (lambda name: "")
    for name, lines in rows.items():
        print(f"{name:<{width}}  {lines:>{sign}7,}{many(name)}")
    total = f"{'total':<{width}}  {sum(rows.values()):>{sign}7,}"
    print(total + (f"  {files.total():>5} files" if files else ""))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Count the lines of code below src/.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--files", action="store_true", help="each file, largest first")
    what.add_argument("--long", action="store_true", help="functions and files that are too long")
    parser.add_argument("--since", metavar="COMMIT", help="what changed since that commit")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    if options.long and options.since:
        parser.error("--long looks at the working tree only: leave out --since")

    texts = sources()
    if options.long:
        found = too_long(texts)
        rows = {one.place: one.lines for one in found}
    else:
        group = dict if options.files else by_package
        rows = group(count(texts))
        if options.since:
            rows = difference(rows, group(count(sources(options.since))))
        if options.files:
            rows = dict(sorted(rows.items(), key=lambda row: -row[1]))

    if options.json:
        print(json.dumps(rows if options.long else {**rows, "total": sum(rows.values())}, indent=2))
    elif options.long:
        for place, lines in rows.items():
            print(f"{lines:>5}  {place}")
        print(f"{len(rows)} functions over {MAX_FUNCTION} lines of code or files over {MAX_FILE}")
    elif options.since:
        table(rows, sign="+")
    else:
        packages = Counter(package_of(path) for path in texts)
        table(rows, None if options.files else packages)


if __name__ == "__main__":
    main()
