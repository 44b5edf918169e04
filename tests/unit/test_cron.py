"""Cron expressions in zones whose clock is never turned: which fire comes next, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.policy.cron import ALIASES, MAX_KEPT, MAX_LENGTH, _read, read_cron
from tests.shown import shown

MAX_MS = 2**53 - 1


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def fires(expression: str, start: str, count: int) -> list[str]:
    cron = read_cron(expression)
    at, found = ms(start), []
    for _ in range(count):
        next_ms = cron.after(at)
        assert next_ms is not None
        at = next_ms
        found.append(datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", "2027-01-01 00:01:00"),
        ("*/20 * * * * *", "2027-01-01 00:00:20"),
        ("59 59 23 31 12 * 4999", "4999-12-31 23:59:59"),
        ("0 0 L 2 *", "2027-02-28 00:00:00"),
        ("0 0 L,15 * *", "2027-01-15 00:00:00"),
        ("0 0 1W 5 *", "2027-05-03 00:00:00"),  # the 1st is a Saturday, April's last is no choice
        ("0 0 31W 1 *", "2027-01-29 00:00:00"),  # the 31st is a Sunday, February's first is none
        ("0 0 15W 5 *", "2027-05-14 00:00:00"),  # a Saturday: the Friday before
        ("0 0 16W 5 *", "2027-05-17 00:00:00"),  # a Sunday: the Monday after
        ("0 0 29W 2 *", "2028-02-29 00:00:00"),  # no such day, no working day near it
        ("0 0 * * FRIL", "2027-01-29 00:00:00"),
        ("0 0 * * fri#L", "2027-01-29 00:00:00"),
        ("0 0 * * 7L", "2027-01-31 00:00:00"),
        ("0 0 * * FRI#2", "2027-01-08 00:00:00"),
        ("0 0 * * 5#5", "2027-01-29 00:00:00"),
        ("0 0 * 2 5#5", "2036-02-29 00:00:00"),
        ("0 0 * * MON-WED#2", "2027-01-11 00:00:00"),
        ("0 0 * * FRI-SUN", "2027-01-02 00:00:00"),
        ("0 0 13 * FRI", "2027-01-08 00:00:00"),  # either will do
        ("0 0 13 * ?", "2027-01-13 00:00:00"),
        ("0 0 ? * MON", "2027-01-04 00:00:00"),
        ("0 0 */2 * MON", "2027-01-03 00:00:00"),  # a step restricts: either will do
        ("0 0 29 2 *", "2028-02-29 00:00:00"),
        ("0 0 0 1 1 * 2030-2040/5", "2030-01-01 00:00:00"),
        ("0 0 0 29 2 * 2100-2104", "2104-02-29 00:00:00"),
        ("0 0 0 29 2 * 2100,2400", "2400-02-29 00:00:00"),
        ("0 0 0 ? 2 TUE#5 2400,2401", "2400-02-29 00:00:00"),
        ("0 0 * 6 5-7#1", "2027-06-04 00:00:00"),
        ("0 0 6 6 SUN#1", "2027-06-06 00:00:00"),
        ("0 0 * 6 7-7#1", "2027-06-06 00:00:00"),
        ("0 0 1 JAN-MAR/2 *", "2027-03-01 00:00:00"),
        ("@Weekly", "2027-01-03 00:00:00"),
        ("  0\t9   1 ,,FEB, *\n", "2027-02-01 09:00:00"),
    ],
    ids=shown,
)
def test_the_next_fire(expression: str, expected: str) -> None:
    assert fires(expression, "2027-01-01 00:00:00", 1) == [expected]


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_is_its_expression_in_any_case(alias: str) -> None:
    for text in (alias, alias.upper(), f" {alias.title()} "):
        assert read_cron(text).walls == read_cron(ALIASES[alias]).walls


def test_a_leap_day_is_waited_for_through_a_century_without_one() -> None:
    assert fires("0 0 29 2 *", "2096-02-29 00:00:00", 1) == ["2104-02-29 00:00:00"]


def test_a_later_year_begins_in_january() -> None:
    assert fires("0 0 0 * * * 2030", "2027-11-15 12:00:00", 1) == ["2030-01-01 00:00:00"]


def test_a_fire_is_on_the_second_whatever_the_start() -> None:
    cron = read_cron("* * * * * *")
    assert cron.after(5_000) == cron.after(5_001) == cron.after(5_999) == 6_000


def test_the_moment_itself_is_not_after_it() -> None:
    cron = read_cron("0 0 1 1 *")
    new_year = ms("2027-01-01")
    assert cron.after(new_year - 1) == new_year
    assert cron.after(new_year) == ms("2028-01-01")


@pytest.mark.parametrize("tz", [None, "+23:59", "-23:59", "Pacific/Kiritimati", "America/Adak"])
def test_there_is_no_fire_beyond_the_calendar(tz: str | None) -> None:
    cron = read_cron("* * * * *", tz)
    end = ms("9999-12-31")
    assert cron.after(end - 120_000) == end - 60_000
    for at in (end - 60_000, end - 1, end, end + 86_400_000, MAX_MS):
        assert cron.after(at) is None
    for at in range(end - 90_000_000, end, 3_333_333):
        fire = cron.after(at)
        assert fire is None or at < fire < end


def test_years_that_have_passed_are_no_error_but_never_come() -> None:
    assert read_cron("0 0 0 1 1 * 2020").after(ms("2027-01-01")) is None
    assert read_cron("0 0 0 1 1 * 2020").after(ms("2019-01-01")) == ms("2020-01-01")


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 30W 2 *",
        "0 0 0 29 2 * 2027",
        "0 0 0 29 2 * 2100,2200,2300",
        "0 0 0 29 2 * */4",  # 1, 5, 9 ... are no leap years
        "0 0 0 ? 2 MON#5 2028",
    ],
)
def test_what_can_never_fire_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="can never fire"):
        read_cron(expression)


MALFORMED = [  # (expression, what the message must say)
    ("", "0 fields; write 5"),
    ("* * * *", "4 fields"),
    ("* * * * * * * *", "8 fields"),
    ("60 * * * *", "minutes '60': 60 is not in 0-59"),
    ("* 24 * * *", "hours '24': 24 is not in 0-23"),
    ("* * 0 * *", "day of month '0': 0 is not in 1-31"),
    ("* * * 13 *", "month '13': 13 is not in 1-12"),
    ("* * * * 8", "day of week '8': 8 is not in 0-7"),
    ("* * * * * * 5001", "year '5001': 5001 is not in 1-5000"),
    ("60 * * * * *", "seconds '60': 60 is not in 0-59; of six fields the first is seconds"),
    ("0 12 * * * 2027", "day of week '2027': 2027 is not in 0-7; of six fields the first is"),
    ("*/0 * * * *", "a step is from 1"),
    ("*/65536 * * * *", "a step is from 1 to 65535"),
    ("*/x * * * *", "after / goes a number, not 'X'"),
    ("5/ * * * *", "after / goes a number, not ''"),
    ("-5 * * * *", "a number is missing"),
    ("5- * * * *", "a number is missing"),
    ("1-2-3 * * * *", "'2-3' is no number"),
    ("*,5 * * * *", "stands alone"),
    ("?,5 * * * *", "is no number"),
    ("* * ?,5 * *", "stands alone"),
    ("? * * * *", "minutes '?'"),
    (", * * * *", "nothing but commas"),
    ("50-10 * * * *", "write 50-59,0-10"),
    ("* 22-2 * * *", "write 22-23,0-2"),
    ("* * * NOV-FEB *", "write NOV-DEC,JAN-FEB"),
    ("* * * DEC-JAN *", "write DEC,JAN"),
    ("* * * 11-2 *", "write 11-12,1-2"),
    ("* * * * FRI-MON", "write FRI-SUN,MON"),
    ("* * * * FRI-TUE", "write FRI-SUN,MON-TUE"),
    ("* * * * 5-2", "write 5-7,1-2"),
    ("* * * * 5-0", "write 5-7"),
    ("* * * * * * 2031-2028", "write 2028-2031"),
    ("* * * * MONDAY", "did you mean 'MON'?"),
    ("* * * JANUARY *", "did you mean 'JAN'?"),
    ("* * * * XYZQ", "known: SUN, MON"),
    ("* * * FRI *", "FRI belongs into the field day of week"),
    ("JAN * * * *", "JAN belongs into the field month"),
    ("* * * JANFEB *", "is no name"),
    ("* * 1W1 * *", "'1W1' is no number"),
    ("* * LW * *", "'L' is no number"),
    ("* * 32W * *", "32 is not in 1-31"),
    ("* * 5L * *", "FRIL as day of week"),
    ("* * * * L", "FRIL is the last Friday"),
    ("* * * * 1-5L", "'1-5' is no number"),
    ("* * * * 5LL", "'5L' is no number"),
    ("* * * * FRI#6", "after # goes 1 to 5 or L, not '6'"),
    ("* * * * FRI#", "not ''"),
    ("* * * * 5#2L", "not '2L'"),
    ("H * * * *", "'H' is no number"),
    ("* * * * ſun", "day of week 'ſun': only digits"),
    ("٣ * * * *", "only digits"),
    ("@midnight", "did you mean '@daily'?"),
    ("@montly", "did you mean '@monthly'?"),
    ("@reboot", "known: @yearly"),
    ("@every 5m", "an interval is no cron expression"),
    ("* * * * *\x00", r"day of week '*\x00'"),
    ("0 0\x1c* * *", r"4 fields"),
    ("\x1b[31m * * * *", r"minutes '\x1b[31m'"),
    ("1" * 900 + " * * * *", "is not in 0-59"),
    ("*/" + "1" * 900 + " * * * *", "a step is from 1 to 65535"),
    ("* * * " + "A" * 900 + " *", "is no name"),
    ("* " * 400, "400 fields"),
    ("\n" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH} characters"),
]


@pytest.mark.parametrize(("expression", "said"), MALFORMED, ids=shown)
def test_a_refusal_says_where_and_why(expression: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_cron(expression)
    text = str(caught.value)
    assert text.endswith(said) if said.startswith("write") else said in text
    assert text.isprintable()
    assert len(text) < 500


@pytest.mark.parametrize("expression", [None, 5, b"* * * * *", ["*"]], ids=shown)
def test_an_expression_is_text(expression: object) -> None:
    with pytest.raises(ArgumentError, match="is text"):
        read_cron(expression)  # type: ignore[arg-type]


def test_what_was_read_is_frozen_and_remembered_but_not_without_bound() -> None:
    cron = read_cron("1 2 3 4 5")
    assert read_cron("1 2 3 4 5") is cron
    with pytest.raises(AttributeError):
        cron.zone = UTC  # type: ignore[misc]
    assert repr(cron) == "<Cron '1 2 3 4 5' in UTC>"
    assert _read.cache_info().maxsize == MAX_KEPT
