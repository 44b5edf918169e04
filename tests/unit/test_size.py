"""`tools/size.py` counts code: no blanks, no comments, no docstrings."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tools import size

SAMPLES = {
    "nothing": ("", 0),
    "only a docstring": ('"""One line."""', 0),
    "an empty docstring": ('""""""', 0),
    "comments and blanks": (
        """
        # a comment

        x = 1  # another
        """,
        1,
    ),
    "docstrings of module, class and functions": (
        '''
        """Of the module,

        over several lines.
        """

        class C:
            """Of a class."""

            def f(self):
                """Of a method,
                in two lines."""
                return 1

            async def g(self): "beside the code"
        ''',
        4,
    ),
    "a docstring in two strings": (
        """
        def f():
            "one"
            "another"
        """,
        2,  # the head, and the second, which is a statement of its own
    ),
    "a docstring in brackets": (
        """
        def f():
            ("one"
             "another")
            return 1
        """,
        4,  # the brackets are code, as little as that may be
    ),
    "strings that are no docstrings": (
        '''
        QUERY = """
            select *

            from jobs
        """
        def f():
            x = 1
            """a string, as a statement"""
            return "text"
        f(
            """an argument"""
        )
        ''',
        12,
    ),
    "continued lines": (
        """
        total = (
            1

            # a comment between
            + 2
        )
        more = 1 + \\
            2
        """,
        6,
    ),
    "decorators": (
        """
        @one
        @another(
            1,
        )
        def f(): ...
        """,
        5,
    ),
    "an f-string over lines": (
        '''
        text = f"""
        {total}

        end"""
        ''',
        4,
    ),
    "letters of more than one byte": (
        """
        class É: "ä"; x = "ö"
        """,
        1,
    ),
}


@pytest.mark.parametrize(("source", "lines"), SAMPLES.values(), ids=SAMPLES)
def test_code_lines(source: str, lines: int) -> None:
    assert len(size.code_lines(dedent(source))) == lines


def test_a_function_is_measured_with_its_decorators_and_without_its_docstring() -> None:
    source = dedent(
        '''
        class C:
            @one
            def long(self):
                """Documented

                at length.
                """

                def inner():
                    # a comment
                    return 1

                return inner

            def short(self): ...
        '''
    )
    assert list(size.long_functions(source, most=4)) == [size.Long("C.long", 5)]
    assert list(size.long_functions(source, most=1)) == [
        size.Long("C.long", 5),
        size.Long("C.long.inner", 2),
    ]
    assert not list(size.long_functions(source, most=5))


FILES = {"src/a/one.py": 10, "src/a/two.py": 5, "src/a/b/three.py": 7, "src/c/four.py": 1}


def test_a_package_is_a_folder_without_those_below_it() -> None:
    assert size.by_package(FILES) == {"a": 15, "a/b": 7, "c": 1}


def test_a_difference_names_what_came_what_went_and_what_changed() -> None:
    before = {"a": 10, "b": 5, "c": 1}
    now = {"a": 12, "c": 1, "d": 3}
    assert size.difference(now, before) == {"a": 2, "b": -5, "d": 3}


def test_the_last_line_of_a_table_is_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    size.table({"a": 1500, "a/b": 7}, Counter({"a": 2, "a/b": 1}))
    assert capsys.readouterr().out.splitlines() == [
        "a        1,500      2 files",
        "a/b          7      1 files",
        "total    1,507      3 files",
    ]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, and something that changed since."""
    monkeypatch.setattr(size, "ROOT", tmp_path)
    package = tmp_path / "src/a"
    package.mkdir(parents=True)
    (package / "one.py").write_text("x = 1\ny = 2\n")
    (package / "gone.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("not = below(src)\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (package / "one.py").write_text("x = 1\ny = 2\n# no code\nz = 3\n")
    (package / "gone.py").unlink()
    long = "def long():\n" + "    x = 1\n" * size.MAX_FUNCTION
    (package / "long.py").write_text(long + "x = 1\n" * (size.MAX_FILE - size.MAX_FUNCTION))
    return package


def said(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, int]:
    size.main([*argv, "--json"])
    answer: dict[str, int] = json.loads(capsys.readouterr().out)
    return answer


def test_the_tree_and_a_commit_are_counted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    most = size.MAX_FILE + 1
    assert said(capsys) == {"a": most + 3, "total": most + 3}
    files = {"src/a/long.py": most, "src/a/one.py": 3, "total": most + 3}
    assert list(said(capsys, "--files").items()) == list(files.items())
    assert said(capsys, "--since", "HEAD") == {"a": most, "total": most}
    assert said(capsys, "--since", "HEAD", "--files") == {
        "src/a/long.py": most,
        "src/a/one.py": 1,
        "src/a/gone.py": -1,
        "total": most,
    }


def test_what_is_too_long_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--long") == {
        "src/a/long.py": size.MAX_FILE + 1,
        "src/a/long.py:long": size.MAX_FUNCTION + 1,
    }


def test_a_commit_that_is_not_there_is_said(project: Path) -> None:
    with pytest.raises(SystemExit, match="git ls-tree failed"):
        size.main(["--since", "no-such-commit"])
