"""One script = one verb: a header that says what it does, few lines, used by somebody."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq import lua
from tests.house.tree import SOURCE, Offence, files, look_at, text_of, tree_of
from tests.store.commands import READS, WRITES

MAX_LINES = 40
SCRIPTS = files(SOURCE / "lua", ".lua")
PARTS = [path for path in SCRIPTS if path.stem.startswith("part_")]
PYTHON = [path for path in files(SOURCE, ".py") if path.parent.name != "lua"]


def header(text: str) -> list[str]:
    lines = text.splitlines()
    if lines[0].startswith("#!lua "):  # flags of the script, which Redis wants first
        del lines[0]
    end = next((n for n, line in enumerate(lines) if not line.startswith("--")), len(lines))
    return lines[:end]


def code(text: str) -> list[str]:
    return [line for line in text.splitlines() if not re.fullmatch(r"\s*((--|#!).*)?", line)]


def untold(path: Path) -> Iterator[Offence]:
    """What a header does not say, or says wrongly."""
    text = text_of(path)
    head, body = header(text), "\n".join(code(text))
    if not head or not re.fullmatch(r"-- [A-Z].*[.]", head[0]):
        yield 1, "the first line is one sentence"
    for word in ("KEYS", "ARGV"):
        told = any(line.startswith(f"-- {word} ") for line in head)
        if told != (word in body):
            yield 1, f"the header and the script disagree about {word}"
    if not any(line.startswith("-- Returns ") for line in head):
        yield 1, "the header says what it returns"


def test_a_script_says_what_it_takes_and_gives() -> None:
    look_at(SCRIPTS, untold)


def test_a_script_is_short() -> None:
    def too_long(path: Path) -> list[Offence]:
        count = len(code(text_of(path)))
        return [(1, f"{count} lines of code, at most {MAX_LINES}")] if count > MAX_LINES else []

    look_at(SCRIPTS, too_long)


def test_there_are_scripts() -> None:
    assert SCRIPTS


def test_every_script_is_used() -> None:
    words = {
        node.value
        for path in PYTHON
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {path.stem for path in SCRIPTS if path not in PARTS} <= words


def test_every_part_stands_in_front_of_a_script() -> None:
    wanted = {
        found[1]
        for path in SCRIPTS
        for line in header(path.read_text())
        if (found := re.fullmatch(r"-- With +(\w+)", line))
    }
    assert wanted == {path.stem for path in PARTS}
    assert not {path.stem for path in PARTS} & set(lua.SOURCES)


def test_every_script_that_is_called_exists() -> None:
    called = {script for path in PYTHON for script in calls(tree_of(path))}
    assert called <= {path.stem for path in SCRIPTS}


def calls(tree: ast.Module) -> set[str]:
    """`lua.call("x", ...)`, `link.run("x", ...)` and `lua.SHA["x"]` name a script."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="call", value=ast.Name(id="lua")),
                args=[ast.Constant(value=str(script)), *_],
            ):
                found.add(script)
            case ast.Call(
                func=ast.Attribute(
                    attr="run",
                    value=ast.Attribute(attr="link" | "_link") | ast.Name(id="link"),
                ),
                args=[ast.Constant(value=str(script)), *_],
            ):
                found.add(script)
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id="lua")), slice=ast.Constant(value=str(script))
            ):
                found.add(script)
    return found


def test_calls_are_seen() -> None:
    text = 'lua.call("a", ()); self._link.run("b", ()); lua.SHA["c"]; subprocess.run("d")'
    assert calls(ast.parse(text)) == {"a", "b", "c"}


# -- read, then write ------------------------------------------------------------------------------

# Lua takes nothing back: what can fail stands in front of the first write. `redis.pcall` cannot.
CALL = re.compile(
    r"redis\.(p?)call\('?([A-Z]+)|\b(tonumber|string\.match|struct)\b|(?<![.\w])([a-z_]+)\("
)
ROW_BY_ROW = "-- each row: read, then write"  # the first row has shown that the reads cannot fail
LATER = {"adopt", "claim"}  # they take up entries, and move nothing


def happening(line: str, functions: dict[str, str]) -> Iterator[str]:
    """What a line of a script does, in order: "read", "write" or "work", which can fail too."""
    for found in CALL.finditer(line.partition(" --")[0]):
        quiet, command, other, function = found.groups()
        if other:
            yield "work"
        elif command and not quiet:
            yield "write" if command in WRITES else "read"
        elif function in functions:
            yield functions[function]


def late(text: str, functions: dict[str, str]) -> list[Offence]:
    """What can fail behind a write, or in a loop that writes."""
    found: list[Offence] = []
    lines, written, loops = text.splitlines(), False, list[tuple[int, int]]()
    for number, line in enumerate(lines, 1):
        if re.fullmatch(r"\s*((--|#!).*)?", line):
            continue
        indent = len(line) - len(line.lstrip())
        loops = [(at, depth) for at, depth in loops if depth < indent]
        if re.match(r"\s*(for|while|repeat)\b", line) and ROW_BY_ROW not in line:
            loops.append((number, indent))
        excused = any(ROW_BY_ROW in one for one in lines[:number]) and indent > 0
        for kind in happening(line, functions):
            if kind != "write" and written and not excused:
                found.append((number, f"this can fail behind a write: {line.strip()}"))
            written = written or kind == "write"
            if kind == "write":
                found += [
                    (at, "a loop reads and writes")
                    for at, depth in loops
                    if reads(lines, at, depth)
                ]
    return found


def reads(lines: list[str], at: int, depth: int) -> bool:
    """Whether the loop that begins in this line reads."""
    body = [lines[at - 1]]
    for line in lines[at:]:
        if line.strip() and len(line) - len(line.lstrip()) <= depth:
            break
        body.append(line)
    rest = body[0].partition(" do")[2]  # what a loop goes over is read once
    return "read" in [kind for line in (rest, *body[1:]) for kind in happening(line, FUNCTIONS)]


def bodies(text: str) -> dict[str, str]:
    """The functions of a part, by name."""
    found = re.finditer(r"^local function (\w+)\(.*?^end$", text, re.MULTILINE | re.DOTALL)
    return {one[1]: one[0].partition("\n")[2] for one in found}


def kind_of(body: str) -> str:
    kinds = {kind for line in code(body) for kind in happening(line, {})}
    return "write" if "write" in kinds else "read" if "read" in kinds else "neither"


FUNCTIONS = {
    function: kind_of(body)
    for path in PARTS
    for function, body in bodies(path.read_text()).items()
    if kind_of(body) != "neither"
}


def test_a_script_reads_before_it_writes() -> None:
    def offences(path: Path) -> list[Offence]:
        text = text_of(path)
        if path in PARTS:
            return [one for body in bodies(text).values() for one in late(body, FUNCTIONS)]
        return late(text, FUNCTIONS)

    look_at([path for path in SCRIPTS if path.stem not in LATER], offences)


def test_every_command_of_a_script_is_known() -> None:
    def unknown(path: Path) -> list[Offence]:
        found = re.findall(r"redis\.p?call\('([A-Z]+)'", text_of(path))
        strange = [(1, f"{name}: does it read or write?") for name in {*found} - READS - WRITES]
        wrong = {*found} & WRITES if "flags=no-writes" in text_of(path) else set()
        return strange + [(1, f"{name} writes") for name in wrong]

    look_at(SCRIPTS, unknown)


@pytest.mark.parametrize(
    "text",
    [
        "redis.call('XADD', 1)\nredis.call('GET', 1)",
        "redis.call('XADD', redis.call('ZADD', 1), redis.call('XLEN', 1))",
        "for i = 1, 2 do\n  redis.call('GET', 1)\n  redis.call('SET', 1)\nend",
        "for i = 1, 2 do redis.call('GET', redis.call('SET', 1)) end",
        "redis.call('SET', 1)\nlocal n = tonumber(ARGV[1])",
        "redis.call('SET', 1)\nlocal n = string.match(text, 'a')",
        "add_row(1)\nsee_dead(1)",
    ],
)
def test_what_can_fail_behind_a_write_is_seen(text: str) -> None:
    assert late(text, FUNCTIONS)


@pytest.mark.parametrize(
    "text",
    [
        "redis.call('GET', 1)\nredis.call('SET', 1)\nredis.pcall('PUBLISH', 1)",
        "for i in redis.call('XRANGE', 1) do\n  redis.call('SET', 1)\nend",
        f"for i = 1, 2 do {ROW_BY_ROW}\n  redis.call('GET', 1)\n  redis.call('SET', 1)\nend",
    ],
)
def test_what_cannot_is_let_be(text: str) -> None:
    assert not late(text, FUNCTIONS)


# -- scripts are constants -------------------------------------------------------------------------

SOURCE_OF = re.compile(r"(lua\.)?(SOURCES|BY_SHA)\[[^\[\]]*(\[[^\[\]]*\])*[^\[\]]*\]")


def sent(tree: ast.AST) -> list[tuple[str, bool]]:
    """What is sent to a server as a script: its source as it is written, and whether it is one of
    ours as it lies in its file. Whoever sends EVAL sends something else."""
    found: list[tuple[str, bool]] = []
    for node in ast.walk(tree):
        words = getattr(node, "elts", None) or getattr(node, "args", None)
        if not isinstance(words, list):
            continue
        texts = [word.value if isinstance(word, ast.Constant) else None for word in words]
        for at, text in enumerate(texts):
            if not isinstance(text, str | bytes):
                continue
            text = text.decode("latin-1") if isinstance(text, bytes) else text
            if text in ("EVAL", "EVAL_RO", "FUNCTION", "FCALL"):
                found.append((text, False))
            if text == "LOAD" and at and texts[at - 1] in ("SCRIPT", b"SCRIPT"):
                source = ast.unparse(words[at + 1])
                found.append((source, SOURCE_OF.fullmatch(source) is not None))
    return found


def test_only_scripts_as_they_lie_in_their_files_are_sent() -> None:
    every = [one for path in PYTHON for one in sent(tree_of(path))]
    assert len(every) > 3
    assert [source for source, ours in every if not ours] == []


@pytest.mark.parametrize(
    "code",
    [
        'ask("EVAL", source, 0)',
        'ask("SCRIPT", "LOAD", source)',
        'pack("SCRIPT", "LOAD", f"{lua.SOURCES[name]} {extra}")',
        'pack("SCRIPT", "LOAD", lua.SOURCES[name] + extra)',
        'pack("SCRIPT", "LOAD", lua.SOURCES[name] % extra)',
        'pack(b"SCRIPT", b"LOAD", lua.SOURCES[name].format(extra))',
        'calls = ("SCRIPT", "LOAD", text)',
    ],
)
def test_a_script_that_is_put_together_is_seen(code: str) -> None:
    assert [ours for _, ours in sent(ast.parse(code))] == [False]


def test_the_sources_are_their_files() -> None:
    texts = {path.stem: path.read_text() for path in SCRIPTS}
    parts = {path.stem for path in PARTS}
    for script, source in lua.SOURCES.items():
        assert source.endswith(texts[script])
        front = source.removesuffix(texts[script])
        for part in parts:
            front = front.replace(texts[part], "")
        assert front == ""
    tree = ast.parse((SOURCE / "lua/__init__.py").read_text())
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]


MAKES_CODE = {"load", "loadstring", "loadfile", "dofile", "setfenv", "getfenv", "rawset"}


def test_a_script_makes_no_code_of_its_arguments() -> None:
    def made(path: Path) -> list[Offence]:
        kept = {*code(text_of(path))}
        return [
            (number, word)
            for number, line in enumerate(text_of(path).splitlines(), 1)
            if line in kept
            for word in MAKES_CODE & {*re.findall(r"[A-Za-z_]+", line)}
        ]

    look_at(SCRIPTS, made)
