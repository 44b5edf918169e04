"""Commands whose modules are loaded when they are called: `chasqui inspect` waits for no other.

A group's help needs names, panels and one line each. Those stand in a table of `Later`;
`tests/cli/test_later.py` holds it against the modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand
from typer.main import get_command, get_group


class Later(NamedTuple):
    """A command as its group's help shows it, and where the rest of it is.

    The module has the function, or the group, under the command's name.
    """

    name: str
    panel: str
    module: str
    help: str
    epilog: str = "EXAMPLES"


def add_later(group: Any, commands: Iterable[Later]) -> Any:
    """Give a group its commands, none of them loaded."""
    for one in commands:
        group.commands[one.name] = _Unloaded(one)
    return group


def load(one: Later) -> Any:
    module = import_module(one.module)
    found = getattr(module, one.name)
    if isinstance(found, typer.Typer):
        command: Any = add_later(get_group(found), getattr(module, "COMMANDS", ()))
    else:
        alone = typer.Typer(rich_markup_mode="rich", add_completion=False)
        alone.command(epilog=getattr(module, one.epilog))(found)
        command = get_command(alone)
    command.rich_help_panel = one.panel
    return flowing(command)


def load_all(command: Any) -> Any:
    """The same command with everything below it loaded, for who reads all of it."""
    for name, one in getattr(command, "commands", {}).items():
        command.commands[name] = load_all(load(one.later) if isinstance(one, _Unloaded) else one)
    return command


def flowing(command: Any) -> Any:
    """Help texts are written in lines of our width, and read in lines of the terminal's."""
    if command.help:
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
    for one in getattr(command, "commands", {}).values():
        flowing(one)
    return command


class _Unloaded(TyperCommand):
    """Stands in a group's help; whoever calls it gets the context of the real one."""

    def __init__(self, later: Later) -> None:
        super().__init__(later.name, help=later.help, rich_help_panel=later.panel)
        self.later = later

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        return load(self.later).make_context(info_name, args, parent, **extra)
