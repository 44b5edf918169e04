"""Ours and the reference fire at the same instants, expression by expression.

The reference is asked through its native producer: it puts the first fire after `start_after_ms`
into the sorted set `repeat`. What it makes of odd input is thereby written down here; where that is
plainly a slip of its reader, ours is another, and the expression is listed by name.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from chasquimq.errors import ConfigError
from chasquimq.policy.cron import read_cron
from tests.interop.conftest import MakeSide
from tests.interop.keys import Keys

NEW_YEAR = 2_051_222_400_000  # 2035, a Monday: the reference never begins before the present
STARTS = (NEW_YEAR, NEW_YEAR + 58 * 86_400_000 + 49_530_000, 2_082_758_399_000, 2_147_483_648_000)
STEPS = 3
NEW_YORK = "America/New_York"

# One field in the place where it belongs.
ODD = {
    "{} * * * *": """
        5, ,5 ,,5,, */70 */256 */65535 */65536 99999999999 4294967296 05 0000000000000000000000005
        */0 5/0 1-5/0 1-5-7 1/2/3 1-9/2/3 *-5 1-* */* */1-5 1- - -- -5 /5 */ 5/ / *,1 *,* ** *1 1* ?
        ?/2 L 1W 1#2 1.5 +5 H ~ ٣ 59/1 58-59 7-7 60 -1 0-60 0-59/59 */59 */60 3/7,50-59/4
    """,
    "0 {} * * *": """
        24 23 22-2 0-23/6 */7 20/2 L ? 8-17 00 0-24 ,
    """,
    "0 0 {} * *": """
        L l L,15 15,L L,L L,15W 15W 15w 015W 1W 31W 30W 29W 15W,20 15W,20W 15W,15W 1W,L,5-8/3 LW WL
        W W15 0W 32W L5 15W/2 1-15W L/2 1-L L-1 LL 5L ? ?/2 ?? 1? ?,1 */2 1-5/2 1-31 */1 0 32 31
        30,31 1#2 , 0-5 28-31/3
    """,
    "0 0 1 {} *": """
        JAN-MAR jan,Jun JAN-MAR/2 JAN/4 1-MAR JAN-3 0 13 */5 11-2 JANUARY L 1W ? NOV-FEB DEC 12 ,
        jAn 2/3 FOO
    """,
    "0 0 * * {}": """
        1L,5L 1L,5 5#6 5#0 # #2 5# 5#2,5#4 5#2,1 5#2,5 1-5#2 1-5L MON-FRI#1 MON-FRIL MON-FRI/2
        SUN-TUE FRI-SUN SAT-SUN MON-SUN 7 0-7 5-7 6-7 7-2 7-7 7/2 */2 1/2 0/3 */7 6/1 0-0 FRI#L
        fri#l 5#L L LFRI L5 0L 7#1 0#1 SUN#1 8 8L *L *#1 1-5#L 1-5/2#2 1/2#2 */2#2 5L#2 5#02 5#+2
        FRI#2#3 #L L#2 SUN#L 5-7#1 0-7#1 5#1-2 5#1/2 05L 5#5 tuel SAT#3 SUNL ? SUN-MON SUN-SUN
        0-SUN SUN-SUN/2 SUN-SAT MON-SUN/2 WED-MON FRI-MON SUN,MON-SUN 5-0 MONDAY MON,,FRI, mOn-fRi
        MON-5 1-FRI 15W -1 , MONTUE *,1 ?,1 ５
    """,
    "0 0 0 1 1 * {}": """
        2040-2050/5 2040/5 */5 1970-2099 2130 5001 9999 10000 0 27 2038,2041 2041-2038 ? L 02038
        2000-5000/7 2039- , * 2126/3
    """,
}
WHOLE = (
    "@yearly|@annually|@monthly|@weekly|@daily|@hourly|@Daily|@DAILY| @daily |@daily x|"
    "@midnight|@reboot|@every 5m|@ daily|@|daily|| |@secondly|@minutely|,|, , , , ,|* * * *|"
    "* * * * * * * *|0 0 * * * # c|0\t0\t*\t*\t*|0 0 * * *\n|0 0\xa0* * *|0 0\u3000* * *|"
    "0 0\x0b* * *|0 0\x1c* * *|0 0\x85* * *|0 0\u200b* * *|0 0 * * *\x00|* * * * * *|"
    "*/1 * * * * *|60 * * * * *|* * * * * 8|30 * * * * *|*/5 10-20/3 * * * *|"
    "* * * * * * 2027 x|"
    # Both day fields: either will do, unless one is exactly `*` or `?`.
    "0 0 */2 * 1|0 0 1-31 * 1|0 0 */1 * 1|0 0 ? * 1|0 0 1 * ?|0 0 ? * ?|0 0 1 * 0-6|"
    "0 0 1 * */1|0 0 13 * 5|0 0 15W * 1|0 0 L * 1|0 0 L * 1L|0 0 30 2 1|0 0 ?/2 * MON#1|"
    "0 0 1-7 * MON|0 0 * Jan Fri|"
    # Few days, or none at all.
    "0 0 31 2 *|0 0 30 2 *|0 0 30 2,4 *|0 0 30W 2 *|0 0 29W 2 *|0 0 29 2 *|0 0 31 4,6,9,11 *|"
    "0 0 * 2 5#5|0 0 L 2 *|0 0 0 29 2 * 2027|0 0 0 29 2 * 2100|0 0 0 29 2 * 2096-2104|"
    "0 0 0 29 2 * */4|0 0 0 29 2 * */100|0 0 0 1 1 * 2020"
)

# What the reference's reader does: it puts digits in the place of names wherever they stand, then
# looks for letters that it knows, and does not mind what is left over. Ours refuses these ...
SLIPS = {
    "0 0 * JANFEB *": "December: 1 and 2, written one after the other",
    "0 0 1 1JAN *": "November, in the same way",
    "0 0 1 Fri *": "May: FRI is 5, in every field",
    "0 0 * * Jan": "Monday: JAN is 1, in every field",
    "JAN * * * *": "one minute past",
    "0 0 MON * *": "the first of the month",
    "0 0 15WL * *": "15W",
    "0 0 1W1 * *": "1W",
    "0 0 * * 5LL": "5L",
    "0 0 * * 5#2L": "5L",
    "0 0 * * L,1": "1",
    "0 0 * * ſun": "SUN: that sign's capital is an S",
}
# ... and of these it makes what they say: Sunday is 7 as well as 0.
MEANT = {
    "0 0 * * 7L": "0 0 * * SUNL",
    "0 0 * * 7#L": "0 0 * * SUNL",
    "0 0 * * 5-7#L": "0 0 * * FRIL,SATL,SUNL",
}

ZONES: tuple[str | None, ...] = (
    *(None, "", "  ", "\t", "\u3000", "UTC", "utc", "Utc", " UTC ", "Z", " Z ", "z", "Zulu", "UCT"),
    *("+05:30", "-03:30", "+5:30", "-0530", "+0530", " +05:30 ", "+00:00", "-00:00", "+0000"),
    *("+23:59", "-23:59", "+24:00", "+2400", "+5", "+05", "-1", "+530", "05:30", "0530", "−05:00"),
    *("+05:30:00", "+ 5:30", "+:30", "+05:", ":30", "+5:30 x", "+0530Z", "+٠5:30", "UTC+5", "utc0"),
    *("Europe/Berlin", " Europe/Berlin ", "Europe/Berlin\n", "europe/berlin", "Europe/Kyiv", "CET"),
    *("US/Eastern", "EST", "EST5EDT", "Etc/GMT+5", "Etc/UTC", "GMT", "ROC", "Local", "localtime"),
    *("posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "Factory", "Etc/Unknown"),
    *("America/../Europe/Berlin", "/etc/localtime", "Europe", "Europe/", "Europe//Berlin"),
    "tzdata.zi",
)
# It takes these, too: 5 h 03, 6 h 00, 4 h 30 to the west of ... ours are ±HH:MM, ±H:MM and ±HHMM.
LOOSE_OFFSETS = ("+5:3", "+05:60", "+0560", "+-5:30", "++5:30", "+05:+3", "+5:030", "+001:00")


class Asked:
    """The reference, asked for one fire after another."""

    def __init__(self, side: MakeSide, keys: Keys, queue: str) -> None:
        self._side = side("reference")
        self._client = keys.client
        self._repeat = f"{{chasqui:{queue}}}:repeat"

    def after(self, expression: str, tz: str | None, at_ms: int) -> int | None:
        pattern = {"kind": "cron", "expression": expression}
        spec: dict[str, Any] = {
            "key": "asked",
            "job_name": "asked",
            "pattern": pattern if tz is None else {**pattern, "tz": tz},
            "payload": b"\xc0",
            "start_after_ms": at_ms,
        }
        try:
            self._side.produce("upsert_repeatable", spec)
        except RuntimeError as error:
            if "config: " not in str(error):
                raise
            return None
        return int(self._client.zscore(self._repeat, "asked"))

    def chain(self, expression: str, tz: str | None, at_ms: int, steps: int) -> list[int | None]:
        return walk(lambda at: self.after(expression, tz, at), at_ms, steps)


def walk(after: Any, at_ms: int, steps: int) -> list[int | None]:
    fires: list[int | None] = []
    at: int | None = at_ms
    while at is not None and len(fires) < steps:
        at = after(at)
        fires.append(at)
    return fires


def ours(expression: str, tz: str | None, at_ms: int, steps: int) -> list[int | None]:
    try:
        return walk(read_cron(expression, tz).after, at_ms, steps)
    except ConfigError:
        return [None]


@pytest.fixture
def asked(side: MakeSide, keys: Keys, queue_name: str) -> Asked:
    return Asked(side, keys, queue_name)


def test_odd_expressions_fire_as_the_reference_does_or_are_refused_as_there(asked: Asked) -> None:
    odd = [shape.format(text) for shape, texts in ODD.items() for text in texts.split()]
    assert len(odd) > 200
    for expression in (*odd, *WHOLE.split("|")):
        for start in STARTS[: 1 if ours(expression, None, NEW_YEAR, 1) == [None] else 2]:
            theirs = asked.chain(expression, None, start, STEPS)
            assert ours(expression, None, start, STEPS) == theirs, expression


def test_the_slips_of_the_reference_are_refused(asked: Asked) -> None:
    for expression in SLIPS:
        assert ours(expression, None, NEW_YEAR, 1) == [None], expression
        assert asked.after(expression, None, NEW_YEAR) is not None, expression


def test_a_sunday_is_a_sunday_where_the_reference_loses_it(asked: Asked) -> None:
    for expression, meant in MEANT.items():
        fires = ours(expression, None, NEW_YEAR, 12)
        assert fires == ours(meant, None, NEW_YEAR, 12) == asked.chain(meant, None, NEW_YEAR, 12)
        assert fires != asked.chain(expression, None, NEW_YEAR, 12), expression


def test_random_expressions_fire_as_the_reference_does(asked: Asked) -> None:
    dice = random.Random(16)
    zones = (None, "Asia/Kolkata", "Asia/Tokyo", "+05:30", "-11:00", "America/Bogota")
    fired = 0
    for _ in range(400):
        expression, tz, start = made_up(dice), dice.choice(zones), dice.choice(STARTS)
        theirs = asked.chain(expression, tz, start, STEPS)
        assert ours(expression, tz, start, STEPS) == theirs, (expression, tz, start)
        fired += theirs[0] is not None
    assert fired > 200


def test_zones_are_read_as_the_reference_reads_them(asked: Asked) -> None:
    for tz in ZONES:
        theirs = asked.chain("30 9 * * *", tz, NEW_YEAR, 2)
        assert ours("30 9 * * *", tz, NEW_YEAR, 2) == theirs, tz
    for tz in LOOSE_OFFSETS:
        assert asked.after("30 9 * * *", tz, NEW_YEAR) is not None, tz
        assert ours("30 9 * * *", tz, NEW_YEAR, 1) == [None], tz


SPRING, AUTUMN = 2_120_101_200_000, 2_140_660_800_000  # 2037, both 0:00 in New York
# Decision 29: what ours makes up for after a skipped hour, and the reference does not, ...
MADE_UP = ("0,30 2 * * *", "*/10 2 * * *", "* 2 * * *", "15 1-3 * * *", "30 0,2,4 * * *")
# ... and what the reference fires at three o'clock although nothing was skipped.
SPURIOUS = ("30 1 * * *", "45 1 * * *")
SAME_IN_SPRING = (
    *("30 2 * * *", "0 2 * * *", "0 3 * * *", "0 2,3 * * *", "*/30 2-3 * * *", "0 0-5 * * *"),
    *("* 30 2 * * *", "*/1 30 2 * * *", "5 30 2 * * *", "0 * * * *", "15 * * * *", "*/20 * * * *"),
)
SAME_IN_AUTUMN = ("30 1 * * *", "0 1 * * *", "*/30 1-2 * * *", "59 59 1 * * *", "0 0-5 * * *")
TWICE = ("0 * * * *", "*/30 * * * *", "15 0-23 * * *")


def test_turned_clocks_part_us_only_where_decision_29_says_so(asked: Asked) -> None:
    for same, start in ((SAME_IN_SPRING, SPRING), (SAME_IN_AUTUMN, AUTUMN)):
        for expression in same:
            theirs = asked.chain(expression, NEW_YORK, start, 4)
            assert ours(expression, NEW_YORK, start, 4) == theirs, expression
    three = SPRING + 2 * 3_600_000  # there is no two o'clock
    for expression in MADE_UP:
        theirs = asked.chain(expression, NEW_YORK, SPRING, 4)
        assert three not in theirs and three in ours(expression, NEW_YORK, SPRING, 4), expression
    for expression in SPURIOUS:
        theirs = asked.chain(expression, NEW_YORK, SPRING, 4)
        assert three in theirs and three not in ours(expression, NEW_YORK, SPRING, 4), expression
    for expression in TWICE:
        theirs = asked.chain(expression, NEW_YORK, AUTUMN, 9)
        assert set(theirs) < {*ours(expression, NEW_YORK, AUTUMN, 12)}, expression


FIELDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6), (2035, 2068))
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


def made_up(dice: random.Random) -> str:
    """An expression, most of the time one that can be read."""

    def number(field: int) -> str:
        low, high = FIELDS[field]
        found = dice.randint(low, high)
        words = {4: MONTHS, 5: WEEKDAYS}.get(field)
        if words and dice.random() < 0.4:
            return dice.choice((str.upper, str.lower, str.title))(words[found - low])
        return str(found if dice.random() > 0.02 else high + 2)

    def item(field: int) -> str:
        a, b = number(field), number(field)
        if a.isdecimal() and b.isdecimal():
            a, b = sorted((a, b), key=int)
        kinds = [a, a, a, f"{a}-{b}", f"*/{dice.randint(1, 40)}", f"{a}/{dice.randint(1, 20)}"]
        kinds.append(f"{a}-{b}/{dice.randint(1, 9)}")
        nth = dice.randint(1, 5)
        kinds += {3: ["L", f"{a}W"], 5: [f"{a}L", f"{a}#{nth}", f"{a}-{b}#{nth}"]}.get(field, [])
        return dice.choice(kinds)

    def text(field: int) -> str:
        if dice.random() < 0.35:
            return dice.choice("*?") if field in (3, 5) else "*"
        return ",".join(item(field) for _ in range(dice.choice((1, 1, 1, 2, 3))))

    fields = dice.choice((range(1, 6), range(1, 6), range(6), range(7)))
    return " ".join(text(field) for field in fields)
