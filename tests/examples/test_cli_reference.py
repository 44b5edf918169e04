"""The command line on paper is that of the code: its reference, and every line on every page."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from chasquimq.cli.app import build_whole
from chasquimq.cli.exits import Exit
from tests.examples.page import PAGES, ROOT, name
from tools import cli_reference

ROOT_COMMAND = build_whole()
_ARGS = re.compile(r"^ *args: (\[\"chasqui\".*\])$", re.MULTILINE)  # of a container
_LINE = re.compile(r"^(?:    |- |ExecStart=/\S*/|)(chasqui (?!=).*)$", re.MULTILINE)


def test_the_reference_is_what_the_code_says() -> None:
    wanted = cli_reference.pages()
    for file, text in wanted.items():
        assert file.exists() and file.read_text() == text, "run `make cli-reference`"
    assert set((ROOT / "docs/reference/cli").glob("*.md")) <= set(wanted)


def test_every_exit_code_is_explained() -> None:
    assert set(cli_reference.MEANINGS) == set(Exit)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for word, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, (*path, word))
        else:
            yield (*path, word), one


EVERY = dict(commands(ROOT_COMMAND))


@pytest.mark.parametrize("path", EVERY, ids=" ".join)
def test_a_command_explains_itself(path: tuple[str, ...]) -> None:
    command = EVERY[path]
    assert command.help
    assert f"chasqui {' '.join(path)}" in command.epilog, "an example of it"
    assert all(one.help for one in command.params), [one.name for one in command.params]
    wide = [line for line in Text.from_markup(command.epilog).plain.splitlines() if len(line) > 78]
    assert not wide, "a terminal of 80 columns would break it"


def option_names(command: Any) -> set[str]:
    found = {"--help", "-h"}
    for one in command.params:
        found.update(one.opts, one.secondary_opts)
    return found


def lines(page: Path) -> list[str]:
    text = re.sub(r"\\\n\s*", " ", page.read_text())
    text = re.sub(r"\$\((chasqui [^)]*)\)", r"\n\1\n", text)  # a line within a line
    found = [line for line in _LINE.findall(text) if not re.search(r"\[(OPTIONS|--)", line)]
    return found + [shlex.join(json.loads(args)) for args in _ARGS.findall(text)]


def unknown(line: str) -> list[str]:
    """Words of a line that the command does not know; what follows a pipe is not its."""
    words = shlex.split(re.split(r" \|\|? | > |   ", line)[0], comments=True)[1:]
    place, options = ROOT_COMMAND, option_names(ROOT_COMMAND)
    while words and hasattr(place, "commands"):
        if words[0].startswith("-"):
            if words[0].partition("=")[0] not in options:
                return words[:1]
            words = words[
                1 if words[0] in ("--help", "-h", "--version") or "=" in words[0] else 2 :
            ]
            continue
        if words[0] not in place.commands:
            return words[:1]
        place = place.commands[words[0]]
        options, words = option_names(place), words[1:]
    return [
        word
        for word in words
        if word.startswith("-") and not word[1:2].isdigit() and word != "-"
        and word.partition("=")[0] not in options
    ]  # fmt: skip


SHOWING = [page for page in PAGES if lines(page)]


@pytest.mark.parametrize("page", SHOWING, ids=name)
def test_every_line_on_a_page_is_one_that_the_command_knows(page: Path) -> None:
    strange = {line: words for line in lines(page) if (words := unknown(line))}
    assert not strange


def test_a_strange_line_is_seen() -> None:
    assert unknown("chasqui inspekt mail") == ["inspekt"]
    assert unknown("chasqui inspect mail --grupp x") == ["--grupp"]
    assert not unknown("chasqui --redis-url redis://h:1 inspect mail --json")
