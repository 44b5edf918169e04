"""Commands that are loaded when they are called: the table says what their modules say."""

from __future__ import annotations

import pytest

from chasquimq.cli import app, main, spark
from chasquimq.cli.later import Later, load


@pytest.mark.parametrize(
    "one", [*app.COMMANDS, *spark.COMMANDS], ids=lambda one: one.module.removeprefix("chasquimq.")
)
def test_a_group_says_of_a_command_what_it_says_itself(one: Later) -> None:
    command = load(one)
    assert command.name == one.name
    assert command.help.partition("\n\n")[0] == one.help


def test_a_command_below_a_group_that_was_not_loaded_is_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["spark", "entry", "--no-such-option"]) == 2
    assert "chasqui spark entry [OPTIONS]" in capsys.readouterr().err


def test_who_reads_all_of_it_gets_all_of_it() -> None:
    root = app.build_whole()
    assert {"add", "list"} <= root.commands["repeatable"].commands.keys()
    assert any("--burst" in one.opts for one in root.commands["worker"].params)
    assert any("--queue" in one.opts for one in root.commands["spark"].commands["work"].params)
