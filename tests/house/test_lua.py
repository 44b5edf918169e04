"""One script = one verb: a header that says what it does, few lines, used by somebody."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from chasquimq import lua
from tests.house.tree import SOURCE, Offence, files, look_at, text_of, tree_of

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
