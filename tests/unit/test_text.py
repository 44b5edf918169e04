"""Strangers' texts, fit to be shown: one line, no control characters, no passwords."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from chasquimq.text import discreet, shown


@pytest.mark.parametrize(
    ("text", "widest", "seen"),
    [
        ("plain", None, "plain"),
        ("größe 日本", None, "größe 日本"),
        ("a\nb\r\tc", None, r"a\nb\r\tc"),
        ("\x1b[2J\x9b", None, r"\x1b[2J\x9b"),
        ("right\u202eleft", None, r"right\u202eleft"),
        ("\udc80", None, r"\udc80"),
        ("12345", 5, "12345"),
        ("123456", 5, "1234…"),
    ],
)
def test_a_text_is_one_line_that_a_terminal_only_shows(
    text: str, widest: int | None, seen: str
) -> None:
    assert shown(text, widest) == seen


@given(some.text(), some.integers(1, 30))
def test_whatever_it_is_it_is_printable_and_not_too_long(text: str, widest: int) -> None:
    assert shown(text).isprintable()
    assert len(shown(text, widest)) <= widest


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://user@host", "redis://user@host"),
        ("to redis://me:hunter22@host:1/0 now", "to redis://me:***@host:1/0 now"),  # not a secret
        ("rediss://:p@ss:w/rd@host", "rediss://:***@host"),  # not a secret
        ("valkey://:x@[::1]:7", "valkey://:***@[::1]:7"),
        ("http://u:1@h b http://u:2@h", "http://u:***@h b http://u:***@h"),
        ("redis://h?password=abc&db=1", "redis://h?password=***&db=1"),
        ("{'password': 'abc def', 'db': 1}", "{'password': ***, 'db': 1}"),
        ("Password=abc, next", "Password=***, next"),
        ("api_key: abc", "api_key: ***"),
        ('"secret" => "abc def", x', '"secret" => ***, x'),
        ('{"secret": {"of": "abc"}, "db": 1}', '{"secret": ***, "db": 1}'),
        ("pwd=['a', 'b'] and", "pwd=*** and"),
        ("{'password': b'abc def', 'db': 1}", "{'password': ***, 'db': 1}"),
        (r"""{'password': 'a\'b"cd', 'db': 1}""", "{'password': ***, 'db': 1}"),
        (r'{"secret": "a\"bcd", "db": 1}', '{"secret": ***, "db": 1}'),
        ("password='abcd", "password=***"),
        ("REDIS_PASSWORD=abc db_pwd: 'def'", "REDIS_PASSWORD=*** db_pwd: ***"),
        ("the password is wrong", "the password is wrong"),
        ("passwords=3", "passwords=3"),
    ],
)
def test_a_password_is_taken_out(text: str, seen: str) -> None:
    assert discreet(text) == seen


@given(some.text(alphabet=some.characters(exclude_characters="\n \t\r\x0b\x0c", codec="utf-8")))
def test_no_part_of_a_password_in_a_url_is_left(password: str) -> None:
    text = f"redis://user:{password}MARK@host/0"
    assert "MARK" not in discreet(text)


@pytest.mark.parametrize(
    "part", ["a.", "a://:", "a-://", "password='", 'password="\\', "pwd={[", "_secret", " @ ://"]
)
def test_a_stranger_s_text_takes_as_long_as_it_is_long(part: str) -> None:
    """Twice as long a text, twice the time: if it grew with the square, this would take hours."""
    for text in (part * 200_000, part * 200_000 + "://"):
        assert len(discreet(text)) <= len(text) + 3
