"""Run the lines of a ```sh block, as its reader would at a prompt.

`redis-cli` lines go to the server of the page, and are printed as redis-cli prints at a prompt.
`chasqui` lines run in this process; one with a pipe or a redirection runs in a shell.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import redis

from chasquimq.cli import main
from tests.examples.page import Block

COMMANDS = ("redis-cli", "chasqui", "printf")  # the last one makes the files of a page
LINE_S = 30.0
_NEEDS_A_SHELL = {"|", ">", "<", "&&", "||", ";"}


def lines(block: Block) -> Iterator[str]:
    """The commands of a block; a backslash at the end of a line goes on in the next one."""
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        if line.split(" ")[0] in COMMANDS:
            yield line


def run_lines(block: Block, client: redis.Redis, place: Mapping[str, Any], folder: Path) -> str:
    """Run a block; answers what its lines printed. A line that fails is an error."""
    printed = []
    for line in lines(block):
        words = shlex.split(line, comments=True)
        if _NEEDS_A_SHELL & set(_words(line)):
            printed.append(_in_a_shell(line, place, folder))
        elif words[0] == "redis-cli":
            printed.append(_at_the_prompt(client, words[1:]))
        else:
            printed.append(_in_here(words[1:], place, folder))
    return "".join(printed)


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=False, punctuation_chars=True)  # keeps quotes
    lexer.whitespace_split = True
    return list(lexer)


def _environment(place: Mapping[str, Any]) -> dict[str, str]:
    here = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ.get('PATH', '')}",
        "CHASQUI_REDIS_URL": place["redis_url"],
        "CHASQUI_DIALECT": place["dialect"] or "",
    }


def _in_here(words: list[str], place: Mapping[str, Any], folder: Path) -> str:
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, _environment(place)),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO())),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    assert code == 0, f"chasqui {shlex.join(words)} ended with {code}: {err.getvalue()}"
    return out.getvalue()


def _in_a_shell(line: str, place: Mapping[str, Any], folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        env=_environment(place),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LINE_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def _at_the_prompt(client: redis.Redis, words: list[str]) -> str:
    """What redis-cli shows; unlike the client's methods, as the server answers it."""
    connection = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return "\n".join(shown(connection.read_response())) + "\n"
    finally:
        client.connection_pool.release(connection)


def shown(reply: Any) -> list[str]:
    """A reply in the manner of redis-cli at a terminal."""
    if reply is None:
        return ["(nil)"]
    if isinstance(reply, int):
        return [f"(integer) {reply}"]
    if isinstance(reply, list):
        if not reply:
            return ["(empty array)"]
        found = []
        for place, one in enumerate(reply, 1):
            mark = f"{place:>{len(str(len(reply)))}}) "
            first, *rest = shown(one)
            found += [mark + first, *(" " * len(mark) + line for line in rest)]
        return found
    return [_quoted(bytes(reply))]


def _quoted(text: bytes) -> str:
    plain = (
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}"
        for byte in text
    )
    return f'"{"".join(plain)}"'
