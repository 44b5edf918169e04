"""What no file of the project may hold: secrets, registry addresses, Lua in Python, loose tasks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.tree import (
    ROOT,
    SOURCE,
    TEXT,
    Offence,
    files,
    lines_of,
    look_at,
    text_of,
    tree_of,
)

EVERYTHING = files(ROOT, *TEXT)
PYTHON = [path for path in files(ROOT, ".py") if path.parent != Path(__file__).parent]
SOURCES = files(SOURCE, ".py")

PINNED = re.compile(r" +--hash=sha256:[0-9a-f]{64}(?: \\)?")  # a file that pip may install
# An action or an image of a workflow, by its hash.
ACTION = re.compile(r" +(- )?uses: [\w./-]+@[0-9a-f]{40} # v[\d.]+")
IMAGE = re.compile(r" +image: [\w./:-]+@sha256:[0-9a-f]{64}")
PINS = (PINNED, ACTION, IMAGE)
FAKE = "not a secret"  # a line with these words is let through: obviously made up, for a test

SECRETS = {
    "a password in a URL": r"\b\w+://[^\s/:@{}<>\"'`]*:(?!password@)[^\s/:@{}<>\"'`$*]{3,}@",
    "an access key": r"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "a private key": r"BEGIN [A-Z ]*" + "PRIVATE KEY",
    "a service's token": r"\b(gh[pousr]_|github_pat_|xox[abpr]-|sk-|glpat-)[\w-]{16,}",
    "a long hex token": r"(?<![0-9A-Za-z])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{40,}(?!\w)",
    "a long base64 token": (
        r"(?<![\w+/.=-])(?=[\w+/]*[a-z])(?=[\w+/]*[A-Z])(?=[\w+/]*[0-9])[A-Za-z0-9+/]{40,}={0,2}"
        r"(?![\w+/.-])"
    ),
    "a password given a value": (
        r"(?i)\b(password|passwd|secret|api_?key|token)\s*=\s*[\"'][^\"'{}]{12,}"
    ),
}
# Hosts of package registries, in pieces so that this file does not hold them either.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("pkg", "dev"),
        ("registry", "npmjs", "org"),
        ("repo1", "maven", "org"),
        ("maven", "apache", "org"),
    )
]
# Spark pickles functions by itself; nothing of ours does, in any direction.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "code", "pty"}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load"}
UNSAFE_CALLS |= {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
# Tasks belong to a TaskGroup. Whoever starts one otherwise says here who ends it.
LOOSE_TASKS = {
    "engine/listener.py": "who waits last, or Queue.close, cancels it and waits for its end",
    "sync.py": "a thread waits for each call, or gives it up; at exit all are ended and waited for",
    "store/link.py": "the link owns its mending; close() cancels it and waits for its end",
}


def secrets_in(text: str) -> list[Offence]:
    return [
        (number, what)
        for number, line in enumerate(text.splitlines(), 1)
        if FAKE not in line and not any(pin.fullmatch(line) for pin in PINS)
        for what, pattern in SECRETS.items()
        if re.search(pattern, line)
    ]


def test_no_file_holds_a_secret() -> None:
    prose = [path for path in EVERYTHING if path.suffix not in (".json", ".csv")]
    look_at(prose, lambda path: secrets_in(text_of(path)))


@pytest.mark.parametrize(
    "line",
    [
        "redis://user:" + "hunter22@host",
        "rediss://:" + "abc@host:6379/0",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "-----BEGIN RSA " + "PRIVATE KEY-----",
        "ghp_" + "a1" * 10,
        "deadbee5" * 5,
        "aB3" * 16,
        "pass" + 'word = "correct horse battery"',
        f"      - run: ./deploy {'deadbee5' * 5}",
        f"      - uses: owner/action@{'deadbee5' * 5}",  # of which version is it?
    ],
)
def test_a_secret_is_seen(line: str) -> None:
    assert secrets_in(line)
    assert not secrets_in(f"{line}  # {FAKE}")


@pytest.mark.parametrize(
    "line",
    [
        "redis://127.0.0.1:6379/0",
        "redis://user:***@host",
        "rediss://[user:password@]host",
        'f"redis://:{secret}@{host}"',
        "x" * 60,
        f"      - uses: owner/action@{'deadbee5' * 5} # v1.2.3",
        f"        image: owner/image:1.2@sha256:{'deadbee5' * 8}",
    ],
)
def test_what_is_no_secret_passes(line: str) -> None:
    assert not secrets_in(line)


def test_no_file_names_a_registry() -> None:
    hosts = "|".join(map(re.escape, REGISTRIES))
    look_at(EVERYTHING, lambda path: lines_of(text_of(path), hosts))


def test_lua_stays_in_lua_files() -> None:
    look_at(PYTHON, lambda path: lines_of(text_of(path), r"redis\.p?call\s*\("))


def unsafe_in(tree: ast.AST) -> list[Offence]:
    """What in a file runs, or makes objects of, bytes that may have come from outside."""
    found: list[Offence] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = (getattr(node, "module", None) or "").split(".")
            names = [part for alias in node.names for part in alias.name.split(".")]
            found += [(node.lineno, one) for one in UNSAFE_MODULES & {*module, *names}]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            shell = any(
                word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords
            )
            found += [(node.lineno, called)] if called in UNSAFE_CALLS or shell else []
    return found


def test_nothing_runs_what_comes_from_outside() -> None:
    look_at(SOURCES, lambda path: unsafe_in(tree_of(path)))


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "import os, marshal as m",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "from pyspark.cloudpickle import dumps",
        "eval(text)",
        "__import__(name)",
        "yaml.load(text)",
        "os.system(line)",
        "subprocess.run(line, shell=True)",
        "subprocess.run(line, shell=choice)",
    ],
)
def test_what_would_run_it_is_seen(code: str) -> None:
    assert unsafe_in(ast.parse(code))


@pytest.mark.parametrize("code", ["re.compile(x)", "evaluate(x)", "run(x, shell=False)"])
def test_what_only_looks_like_it_passes(code: str) -> None:
    assert not unsafe_in(ast.parse(code))


def test_every_task_has_an_owner() -> None:
    bound = [path for path in SOURCES if path.relative_to(SOURCE).as_posix() not in LOOSE_TASKS]
    look_at(bound, lambda path: loose_tasks(tree_of(path)))


def test_the_list_of_exceptions_is_true() -> None:
    for file in LOOSE_TASKS:
        assert loose_tasks(tree_of(SOURCE / file)), f"{file} starts no task: take it off the list"


def loose_tasks(tree: ast.Module) -> list[Offence]:
    """Calls that start a task nobody is bound to await: of `asyncio` itself, or of a loop."""
    found: list[Offence] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "asyncio":
            found += [(node.lineno, a.name) for a in node.names if a.name in LOOSE]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            if node.func.attr in LOOSE and re.search(r"^asyncio$|loop(\(\))?$", owner):
                found.append((node.lineno, ast.unparse(node.func)))
    return found


LOOSE = {"create_task", "ensure_future", "gather"}


@pytest.mark.parametrize(
    ("code", "is_loose"),
    [
        ("asyncio.create_task(f())", True),
        ("asyncio.gather(f(), g())", True),
        ("from asyncio import ensure_future", True),
        ("asyncio.get_running_loop().create_task(f())", True),
        ("self._loop.create_task(f())", True),
        ("group.create_task(f())", False),
    ],
)
def test_a_loose_task_is_seen(code: str, is_loose: bool) -> None:
    assert bool(loose_tasks(ast.parse(code))) == is_loose
