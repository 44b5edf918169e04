"""Time zones: which names are read, as what, and what a refusal says."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.policy.clock import read_zone
from chasquimq.policy.cron import read_cron
from tests.shown import shown

NEW_YEAR = 1_798_761_600_000  # 2027, UTC


@pytest.mark.parametrize(
    "tz", [None, "", "  ", "\t\n", "UTC", "utc", "Utc", " UTC ", "Z"], ids=shown
)
def test_utc_has_many_names(tz: str | None) -> None:
    assert read_zone(tz) is UTC
    assert read_cron("0 0 * * *", tz).zone is UTC


@pytest.mark.parametrize(
    ("tz", "minutes"),
    [
        ("+05:30", 330),
        ("-03:30", -210),
        ("+5:30", 330),
        ("-5:00", -300),
        ("+0530", 330),
        ("-0930", -570),
        ("+00:00", 0),
        ("-00:00", 0),
        ("+23:59", 1439),
        ("-2359", -1439),
        (" +05:30 ", 330),
    ],
)
def test_an_offset_is_a_zone(tz: str, minutes: int) -> None:
    assert read_zone(tz) == timezone(timedelta(minutes=minutes))
    noon = read_cron("0 12 * * *", tz).after(NEW_YEAR)
    assert noon == NEW_YEAR + (720 - minutes) % 1440 * 60_000


@pytest.mark.parametrize(
    "tz",
    ["Europe/Berlin", "US/Eastern", "EST", "EST5EDT", "Etc/GMT+5", "Asia/Kolkata", "GMT", "Zulu"],
)
def test_a_name_is_a_zone(tz: str) -> None:
    assert read_zone(tz) is read_zone(f" {tz}\n") is ZoneInfo(tz)


def test_every_zone_there_is_can_be_read() -> None:
    for name in available_timezones() - {"Factory", "localtime"}:
        read_zone(name)


@pytest.mark.parametrize(
    ("tz", "said"),
    [
        ("z", "unknown time zone 'z'"),
        ("europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("US/Estern", "did you mean 'US/Eastern'?"),
        ("Qwxyzzz", "write UTC, an offset such as +05:30"),
        ("UTC+5", "unknown time zone 'UTC+5'"),
        ("05:30", "unknown time zone '05:30'"),
        ("+5", "is no offset; write it as +05:30"),
        ("+530", "is no offset"),
        ("+5:3", "is no offset"),
        ("+05:30:00", "is no offset"),
        ("+ 5:30", "is no offset"),
        ("+٠5:30", "is no offset"),
        ("+", "is no offset"),
        ("+24:00", "from -23:59 to +23:59"),
        ("-9999", "from -23:59 to +23:59"),
        ("+05:60", "from -23:59 to +23:59"),
        ("−05:00", "unknown time zone"),
        ("Europe", "unknown time zone"),
        ("Europe/", "unknown time zone"),
        ("Factory", "unknown time zone"),
        ("localtime", "unknown time zone"),
        ("posixrules", "unknown time zone"),
        ("right/Europe/Berlin", "unknown time zone"),
        ("posix/Europe/Berlin", "unknown time zone"),
        ("/etc/localtime", "unknown time zone"),
        ("../../../etc/passwd", "unknown time zone"),
        ("Europe/../Europe/Berlin", "unknown time zone"),
        ("Europe/Berlin\x00", r"unknown time zone 'Europe/Berlin\x00'"),
        ("\x1b[31mred", r"unknown time zone '\x1b[31mred'"),
        ("A/" * 5000, "unknown time zone"),
        ("\ud800", "unknown time zone"),
    ],
    ids=shown,
)
def test_what_is_no_zone_is_refused(tz: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_cron("0 0 * * *", tz)
    text = str(caught.value)
    assert said in text
    assert text.isprintable() and len(text) < 300


@pytest.mark.parametrize("tz", [5, b"UTC", ["UTC"], UTC], ids=shown)
def test_a_zone_is_text(tz: object) -> None:
    for read in (read_zone, lambda tz: read_cron("0 0 * * *", tz)):
        with pytest.raises(ArgumentError, match="name of a time zone"):
            read(tz)  # type: ignore[arg-type]


@given(st.text(max_size=20))
def test_any_text_is_a_zone_or_refused(text: str) -> None:
    try:
        zone = read_zone(text)
    except ConfigError:
        return
    assert datetime(2027, 1, 1, tzinfo=zone).utcoffset() is not None


def test_a_name_never_leads_to_a_file_elsewhere(tmp_path: Path) -> None:
    """Whoever may choose a name must not thereby choose a file."""
    secret, zones = tmp_path / "secret", tmp_path / "zones"
    secret.write_bytes(b"TZif")
    zones.mkdir()
    code = """
import sys
from chasquimq.policy.clock import read_zone

opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
for name in ("../secret", "Europe/../../secret", "./../secret", sys.argv[1]):
    try:
        read_zone(name)
    except ValueError as error:
        assert "unknown time zone" in str(error), error
    else:
        raise SystemExit(name)
assert opened and not [name for name in opened if "secret" in name], opened
"""
    assert run(code, zones, str(secret)) == ""


def test_a_machine_without_zone_files_has_those_of_the_package(tmp_path: Path) -> None:
    code = """
from chasquimq.policy.cron import read_cron

print(read_cron("30 2 * * *", "America/New_York").after(1804939200000))
try:
    read_cron("0 0 * * *", "europe/berlin")
except ValueError as error:
    print(error)
"""
    printed = run(code, tmp_path)
    assert printed.startswith("1805007600000\n")
    assert "did you mean 'Europe/Berlin'?" in printed


def run(code: str, zones: Path, *arguments: str) -> str:
    """What the code prints where the system's zone files are in a folder of ours."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONTZPATH": str(zones)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
