"""Which columns give way, and what is said of a word that nobody knows."""

from __future__ import annotations

import pytest

from chasquimq.cli.fit import fit
from chasquimq.cli.near import near
from chasquimq.cli.screen import plain
from chasquimq.cli.sheet import Column, sheet

TABLE = sheet(
    ("id", "source", Column("error", wide=True), "empty", "age"),
    [("1" * 15, "2" * 15, "x" * 80, None, "3d05h"), ("4" * 15, "5" * 15, "-", None, "2d05h")],
)
GIVE_WAY = ("source", "empty", "age")


@pytest.mark.parametrize(
    ("width", "hidden"),
    [
        (None, []),
        (200, []),
        (1 + 16 + 16 + 17 + 6 + 6, []),
        (1 + 16 + 16 + 17 + 6 + 5, ["empty"]),  # what holds nothing goes first
        (1 + 16 + 17 + 6, ["empty", "source"]),
        (1 + 16 + 17, ["empty", "source", "age"]),
        (10, ["empty", "source", "age"]),  # the rest stays, whatever becomes of it
    ],
)
def test_columns_give_way_in_their_order(width: int | None, hidden: list[str]) -> None:
    fitted = fit(TABLE, width, GIVE_WAY, "look elsewhere")
    heads = [column.head for column in TABLE.columns if column.head not in hidden]
    assert [column.head for column in fitted.columns] == heads
    assert all(len(row) == len(heads) for row in fitted.rows)
    note = f"not shown at this width: {', '.join(hidden)}; look elsewhere"
    assert fitted.notes == ((note,) if hidden else ())
    assert "x" * 80 in plain(fitted)


@pytest.mark.parametrize(
    ("word", "known", "says"),
    [
        ("ValueErorr", ["KeyError", "ValueError"], "did you mean 'ValueError'?"),
        ("digest", ["poll:7", "digest::cron:0 9 * * *:UTC"], "mean 'digest::cron:0 9 * * *:UTC'?"),
        ("zzz", ["a", "b"], "known: a, b"),
        ("zzz", [f"k{n}" for n in range(15)], "k9 and 5 more"),
        ("zzz", [], "there is none"),
        ("", ["a"], "known: a"),
        ("a\x1b", ["a\x1b"], "did you mean 'a\\x1b'?"),
    ],
)
def test_the_nearest_known_word(word: str, known: list[str], says: str) -> None:
    assert near(word, known).endswith(says)
