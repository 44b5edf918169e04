"""Write docs/reference/cli.md and docs/reference/cli/*.md from the command itself.

And `src/chasquimq/cli/pages.txt`, from which `--help` is shown.

python tools/cli_reference.py            writes the pages
python tools/cli_reference.py --check    says which ones are not what the code says (exit 1)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from rich.text import Text

from chasquimq.cli.app import build_whole
from chasquimq.cli.exits import Exit

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tools import help_pages  # noqa: E402 - found from the root only

REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Written by `make cli-reference` from the code; do not edit. -->"
FRONT = """\
# The command line

{note}

    chasqui [--redis-url URL] COMMAND ...

Every command has `--help`. What it prints is for eyes in a terminal, plain columns in a pipe, and
JSON with `--json`: one document, or one per line where there is no end. Messages, questions and
progress bars go to stderr.

| command | what it does |
|---|---|
{commands}

## For all commands

| option | meaning |
|---|---|
{options}

| variable | meaning |
|---|---|
| `CHASQUI_REDIS_URL` | where Redis or Valkey is; no list of processes shows it |
| `CHASQUI_DIALECT` | `native` or `portable`, to force one; the server is asked otherwise |
| `CHASQUI_LAKE` | the folder of the lake, for the commands of `spark` that have `--lake` |
| `CHASQUI_JDBC_PASSWORD` | the database's password, for [`spark enqueue`](cli/spark-enqueue.md) |
| `CHASQUI_SPARK_LOG` | what Spark itself logs: `off` (the default), `error`, `warn`, `info` |
| `NO_COLOR` | no colours |
| `COLUMNS` | how wide help and tables are; the terminal is asked otherwise |

## Exit codes

| code | it means |
|---|---|
{exits}
"""
MEANINGS = {
    Exit.DONE: "it did what was asked. A worker was told to stop, and has",
    Exit.FAILED: "it could not: not found, not confirmed, timed out, or an error",
    Exit.USAGE: "the command line, an option or a setting makes no sense",
    Exit.NO_SERVER: "Redis cannot be reached, or does not let us in",
    Exit.WARNINGS: "`doctor`: something should be looked at",
    Exit.PROBLEMS: "`doctor`: something is wrong",
    Exit.INTERRUPTED: "stopped by Ctrl-C; a worker by the second one",
    Exit.TERMINATED: "a worker was stopped by a second SIGTERM",
}


MANY = 8  # commands of a group: more of them have pages of their own


def pages() -> dict[Path, str]:
    root = build_whole()
    found = {REFERENCE / "cli.md": _front(root), help_pages.FILE: help_pages.pages()}
    for name, command in _commands(root):
        large = _is_group(command) and len(_commands(command)) > MANY
        found[REFERENCE / "cli" / f"{name}.md"] = (_index if large else _page)(name, command)
        for sub, one in _commands(command) if large else ():
            found[REFERENCE / "cli" / f"{name}-{sub}.md"] = _page(f"{name} {sub}", one)
    return found


def _commands(group: Any) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in group.commands.items() if not one.hidden]


def _front(root: Any) -> str:
    rows = []
    for name, command in _commands(root):
        inner = ", ".join(f"`{sub}`" for sub, _ in _commands(command)) if _is_group(command) else ""
        what = f"{_first(command)}{f' {inner}' if inner else ''}"
        rows.append(f"| [`{name}`](cli/{name}.md) | {what} |")
    exits = [f"| {int(one)} | {MEANINGS[one]} |" for one in Exit]
    return FRONT.format(
        note=NOTE,
        commands="\n".join(rows),
        options="\n".join(_options(root)),
        exits="\n".join(exits),
    )


def _is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def _page(name: str, command: Any) -> str:
    title = f"# chasqui {name}\n\n{NOTE}\n\n[The command line](../cli.md)\n"
    if not _is_group(command):
        return title + "\n" + _body(f"chasqui {name}", command)
    parts = [title, _help(command)]
    for sub, one in _commands(command):
        parts.append(f"## {sub}\n\n{_body(f'chasqui {name} {sub}', one)}".rstrip())
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _index(name: str, command: Any) -> str:
    """Of a group that has a page for each of its commands."""
    rows = [f"| [`{sub}`]({name}-{sub}.md) | {_first(one)} |" for sub, one in _commands(command)]
    table = "| command | what it does |\n|---|---|\n" + "\n".join(rows)
    parts = [f"# chasqui {name}\n\n{NOTE}\n\n[The command line](../cli.md)", _help(command), table]
    return "\n\n".join((*parts, _examples(command.epilog))) + "\n"


def _body(line: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join((line, *(_usage(one) for one in arguments), "[OPTIONS]"))
    parts = [f"    {usage}", _help(command)]
    rows = [f"| `{_metavar(one)}` | {_text(one)} |" for one in arguments]
    rows += _options(command, ("help", "redis_url"))
    if rows:
        parts.append("| argument or option | meaning |\n|---|---|\n" + "\n".join(rows))
    if command.epilog:
        parts.append(_examples(command.epilog))
    return "\n\n".join(parts) + "\n"


def _help(command: Any) -> str:
    return _plain(command.help or "").strip()


def _first(command: Any) -> str:
    return _help(command).partition("\n")[0]


def _usage(argument: Any) -> str:
    name = _metavar(argument)
    name += "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return name if argument.required else f"[{name}]"


def _metavar(parameter: Any) -> str:
    return (parameter.metavar or parameter.name.upper()).strip("[]")


def _options(command: Any, left_out: tuple[str, ...] = ("help",)) -> Iterator[str]:
    for one in command.params:
        if one.param_type_name == "argument" or one.hidden or one.name in left_out:
            continue
        names = ", ".join(f"`{name}`" for name in sorted(one.opts, key=len, reverse=True))
        names += "".join(f" / `{name}`" for name in one.secondary_opts)
        value = "" if one.is_flag or one.count else f" {_value(one)}"
        yield f"| {names}{value} | {_text(one)} |"


def _value(option: Any) -> str:
    if option.metavar:
        return str(option.metavar)
    kind = option.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " \\| ".join(str(one.value) for one in kind)
    if get_origin(kind) is Literal:
        return " \\| ".join(map(str, get_args(kind)))
    return {int: "N", float: "N", Path: "PATH"}.get(kind, "TEXT")


def _text(parameter: Any) -> str:
    text = _plain(parameter.help or "").replace("\n", " ").replace("|", "\\|")
    default = parameter.default
    shown = default is not None and default is not False and default != () and default != []
    if shown and parameter.show_default is not False and not callable(default):
        text += f" Default: `{getattr(default, 'value', default)}`."
    return text + (" May be given several times." if getattr(parameter, "multiple", False) else "")


def _examples(epilog: str) -> str:
    lines = _plain(epilog).splitlines()
    return "Examples:\n\n" + "\n".join(f"    {line}" for line in lines[1:] if line.strip())


def _plain(text: str) -> str:
    return Text.from_markup(text).plain


def main() -> int:
    wanted, stale = pages(), []
    for file, text in wanted.items():
        if not file.exists() or file.read_text() != text:
            stale.append(file)
    gone = [file for file in (REFERENCE / "cli").glob("*.md") if file not in wanted]
    if "--check" in sys.argv[1:]:
        for file in (*stale, *gone):
            print(f"{file.name} is not what the code says; run `make cli-reference`")
        return bool(stale or gone)
    for file in gone:
        file.unlink()
    for file in stale:
        file.parent.mkdir(exist_ok=True)
        file.write_text(wanted[file])
        print(f"wrote {file.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
