"""What the commands that look show, made of values alone, at the widths that people have."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from chasquimq.cli import render, render_watch
from chasquimq.cli.render_event import event_document, event_line
from chasquimq.cli.screen import Screen, plain, toned
from chasquimq.cli.sheet import Cell, Sheet
from chasquimq.cli.trend import Rates, Trend
from chasquimq.job import Counts
from chasquimq.store.inspect import Holding, Overview, Problem
from chasquimq.subscribe import QueueEvent
from tests.cli.golden import same

NOW = 1_767_225_600_000  # 2026-01-01
EMPTY = Overview(
    queue="mail",
    group="default",
    at_ms=NOW,
    exists=True,
    stream_depth=0,
    pending=0,
    dlq_depth=0,
    delayed_depth=0,
    delayed_due=0,
    delayed_lag_ms=None,
    delayed_next_ms=None,
    repeatables=0,
    repeat_due=0,
    repeat_paused=0,
    repeat_next_ms=None,
    events_depth=0,
    memory_bytes=0,
    stream_added=0,
    dlq_added=0,
    paused=False,
    promoter=None,
    scheduler=None,
    counts=Counts(),
)
FIRST, SECOND = "c-6cdb48b1-9131-476b-beb1-6c3bec36ccc8", "c-00000000-9131-476b-beb1-6c3bec36ccc8"
WORKERS = (Holding(FIRST, 12, 1_300), Holding(SECOND, 3, 754_000))


def queue(name: str = "mail", **facts: Any) -> Overview:
    facts = {field: getattr(EMPTY, field) for field in EMPTY.__struct_fields__} | facts
    return Overview(**{**facts, "queue": name})


BUSY = queue(
    stream_depth=12_360,
    pending=15,
    dlq_depth=7,
    delayed_depth=1_204,
    delayed_due=3,
    delayed_lag_ms=61_000,
    delayed_next_ms=0,
    repeatables=12,
    repeat_paused=2,
    repeat_next_ms=3_599_000,
    memory_bytes=5_300_000,
    stream_added=99_000,
    dlq_added=7,
    promoter=FIRST,
    scheduler=None,
    counts=Counts(12_345, 15, 1_204, 7, 12, 185_000),
    consumers=WORKERS,
)
WRONG = (Problem("{chasqui:odd}:dlq", "string", "stream"),)
ALL = [
    BUSY,
    queue("billing-eu-west", paused=True, delayed_depth=3, consumers=WORKERS[:1]),
    queue("idle"),
    queue("left-alone", counts=Counts(4, 0, 0, 0, 0, 90_061_000), consumers=WORKERS[1:]),
    queue("late", delayed_depth=9, delayed_due=9, delayed_lag_ms=5_000, delayed_next_ms=0),
    queue("odd", counts=None, problems=WRONG),
]
NONE = queue(
    pending=None, exists=False, memory_bytes=None, repeatables=2, repeat_paused=2, problems=WRONG
)


def later(one: Overview, ms: int, **facts: Any) -> Overview:
    known = {field: getattr(one, field) for field in one.__struct_fields__}
    return Overview(**{**known, "at_ms": one.at_ms + ms, **facts})


def watched(*looks: Overview) -> Trend:
    trend = Trend(looks[0])
    for look in looks[1:]:
        trend.add(look)
    return trend


TREND = watched(BUSY, later(BUSY, 1_000, stream_depth=12_300, stream_added=99_240, dlq_depth=9))
SHEETS: dict[str, Sheet] = {
    "inspect-one": render.overview(BUSY),
    "inspect-none": render.overview(NONE),
    "inspect-consumers": render.consumers(BUSY),
    "inspect-all": render.overviews(ALL),
    "watch-one": render_watch.one_queue(TREND),
    "watch-all": render_watch.all_queues([TREND, *map(Trend, ALL[1:])]),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("what", SHEETS)
def test_a_sheet_in_a_terminal(what: str, width: int) -> None:
    screen = Screen(out=io.StringIO())
    screen.console = Console(file=io.StringIO(), width=width, color_system=None)
    with screen.console.capture() as captured:
        screen.console.print(screen.drawn(SHEETS[what]))
    text = captured.get()
    assert "…" not in text
    for row in SHEETS[what].rows:
        for cell in row:
            assert cell.text in text, "at 80 columns nothing usual is cut"
    same(f"{what}-{width}", text)


@pytest.mark.parametrize("what", SHEETS)
def test_a_sheet_in_a_pipe(what: str) -> None:
    same(f"{what}-plain", plain(SHEETS[what]))


# -- words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "long", "short"),
    [
        (None, None, None),
        (0, "0 ms", "0ms"),
        (999, "999 ms", "999ms"),
        (1_000, "1.0 s", "1.0s"),
        (59_999, "59.9 s", "59.9s"),
        (60_000, "1 min 0 s", "1m00s"),
        (3_599_999, "59 min 59 s", "59m59s"),
        (3_600_000, "1 h 0 min", "1h00m"),
        (86_399_999, "23 h 59 min", "23h59m"),
        (86_400_000, "1 d 0 h", "1d00h"),
        (86_400_000 * 99, "99 d 0 h", "99d00h"),
        (86_400_000 * 12_345, "12345 d 0 h", "12345d"),
    ],
)
def test_durations(ms: int | None, long: str | None, short: str | None) -> None:
    assert (render.ago(ms), render.brief(ms)) == (long, short)
    assert short is None or len(short) <= 6


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (5_300_000, "5.1 MiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert render.size(count) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW + 1, "2026-01-01T00:00:00.001Z"),
        (10**18, str(10**18)),
        (-(10**18), str(-(10**18))),
    ],
)
def test_moments(ms: int, text: str) -> None:
    assert render.iso(ms) == text


def test_a_queue_without_workers_is_seen_and_silent_ones_are_none() -> None:
    waiting = Counts(waiting=1)
    assert render.state(queue(counts=waiting)) == Cell("no workers", "bad")
    assert render.state(queue(counts=waiting, consumers=WORKERS[1:])).text == "no workers"
    assert render.state(queue(counts=waiting, consumers=WORKERS)) == Cell("ok", "good")
    assert render.state(queue(counts=waiting, paused=True)) == Cell("paused", "warn")
    assert render.state(queue()) == Cell("ok", "good")


def test_leaders_that_are_no_consumers_are_told_below() -> None:
    one = queue(consumers=WORKERS[:1], promoter=FIRST, scheduler="s-1\x1b")
    table = render.consumers(one)
    assert table.rows[0][-1].text == "promoter"
    assert table.notes == ("scheduler: s-1\\x1b, no consumer of this group",)
    both = render.consumers(queue(consumers=WORKERS[:1], promoter=FIRST, scheduler=FIRST))
    assert both.rows[0][-1].text == "promoter, scheduler" and not both.notes


# -- watching ------------------------------------------------------------------------------------


def test_the_first_look_has_no_differences() -> None:
    trend = watched(BUSY)
    assert (trend.stream_delta, trend.dlq_delta, trend.rates) == (None, None, None)
    assert "Δ" not in [column.head for column in render_watch.one_queue(trend).columns]
    assert "in -/s" in render_watch.pace(trend)[0].text


@pytest.mark.parametrize(
    ("depth", "dlq", "deltas"),
    [(12_365, 8, ["+5", "+1"]), (12_360, 7, ["0", "0"]), (0, 2, ["-12,360", "-5"])],
)
def test_differences_are_since_the_look_before(depth: int, dlq: int, deltas: list[str]) -> None:
    trend = watched(BUSY, later(BUSY, 10, stream_depth=depth, dlq_depth=dlq))
    rows = {row[0].text: row[-1].text for row in render_watch.one_queue(trend).rows}
    assert [rows.pop("stream depth"), rows.pop("DLQ depth")] == deltas
    assert set(rows.values()) == {""}


def test_rates_count_what_came_and_went_between_two_looks() -> None:
    # 240 came in 2 s, and the stream is 60 shorter: 300 went.
    after = later(BUSY, 2_000, stream_added=99_240, stream_depth=12_300, dlq_added=17)
    assert watched(BUSY, after).rates == Rates(120.0, 150.0, 5.0, 2_000)


def test_rates_are_over_ten_seconds_or_since_the_look_before() -> None:
    looks = [later(BUSY, second * 1_000, stream_added=second * 10) for second in range(30)]
    rates = watched(*looks).rates
    assert rates is not None and (rates.come, rates.over_ms) == (10.0, 10_000)
    slow = watched(BUSY, later(BUSY, 60_000, stream_added=BUSY.stream_added + 60)).rates
    assert slow is not None and (slow.come, slow.over_ms) == (1.0, 60_000)


def test_a_stream_that_was_deleted_begins_anew() -> None:
    trend = watched(BUSY, later(BUSY, 1_000, stream_added=3, stream_depth=3))
    assert (trend.rates, trend.stream_delta) == (None, None)
    trend.add(later(BUSY, 2_000, stream_added=5, stream_depth=5))
    assert trend.rates == Rates(2.0, 0.0, 0.0, 1_000)


def test_a_clock_that_was_set_back_is_survived() -> None:
    assert watched(BUSY, later(BUSY, -5_000)).rates is None
    assert watched(BUSY, later(BUSY, 0)).rates is None


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0, 0], "▁▁"), ([0, 1, 1_000], "▁▂█"), ([7, 7], "██"), (range(8), "▁▂▃▄▅▆▇█")],
)
def test_bars_reach_from_nothing_to_the_highest(values: list[int], bars: str) -> None:
    assert render_watch.spark(values) == bars


def test_the_lines_below_the_table_fit_into_80_columns() -> None:
    big = later(BUSY, 9_900, stream_added=99_000 + 1_200_000, dlq_added=90_000)
    trend = watched(*[BUSY] * 100, big)
    assert toned(render_watch.pace(trend)).cell_len <= 80
    assert toned(render_watch.curve(trend, 80)).cell_len <= 80
    assert toned(render_watch.curve(trend, 20)).cell_len > 0


def test_the_header_is_that_of_the_reference() -> None:
    assert render_watch.header("mail", 250, NOW) == (
        "chasqui watch mail  refresh=250ms  2026-01-01T00:00:00.000Z  (Ctrl+C to exit)"
    )
    assert render_watch.header(None, 1, NOW).startswith("chasqui watch  refresh=1ms  ")


def test_of_more_queues_than_fit_the_busiest_are_shown_in_order() -> None:
    trends = [Trend(queue(f"q{n:02}", stream_depth=n % 7)) for n in range(20)]
    table = render_watch.all_queues(trends, 3)
    assert [row[0].text for row in table.rows] == ["q05", "q06", "q13"]
    assert table.notes == ("3 of 20 queues: those with the most to do",)
    troubled = [*trends, Trend(queue("z", counts=Counts(waiting=1)))]
    assert "z" in [row[0].text for row in render_watch.all_queues(troubled, 3).rows]
    assert len(render_watch.all_queues(trends, 20).rows) == 20


# -- events --------------------------------------------------------------------------------------


def event(**facts: Any) -> QueueEvent:
    known = {"name": "completed", "job_id": "w:42", "job_name": "welcome", "fields": {}}
    return QueueEvent(**{**known, "id": "1767225600000-3", **facts})


def text(one: QueueEvent) -> str:
    return " ".join(word.text for word in event_line(one))


def test_an_event_is_a_line_with_its_extras_in_order() -> None:
    fields: dict[str, int | str] = {"ts": NOW + 1, "duration_us": 12, "attempt": 1}
    assert text(event(fields=fields)) == (
        "2026-01-01T00:00:00.001Z 1767225600000-3 completed id=w:42 name=welcome "
        "attempt=1 duration_us=12"
    )
    assert event_document(event(fields=fields)) == {
        "id": "1767225600000-3",
        "at": "2026-01-01T00:00:00.001Z",
        "event": "completed",
        "job_id": "w:42",
        "name": "welcome",
        "fields": fields,
    }


def test_what_an_event_does_not_tell_is_a_dash() -> None:
    assert text(event(name="drained", job_id=None, job_name="")) == (
        "2026-01-01T00:00:00.000Z 1767225600000-3 drained id=- name=-"
    )


@pytest.mark.parametrize(("length", "cut"), [(80, "x" * 80), (81, "x" * 80 + "...")])
def test_long_values_are_cut(length: int, cut: str) -> None:
    assert text(event(fields={"reason": "x" * length})).endswith(f" reason={cut}")


def test_strangers_words_are_shown_and_not_obeyed() -> None:
    one = event(
        name="\x1b[2J", job_id="a\nb", job_name="[red]", fields={"\x07": "\u202e", "ts": "?"}
    )
    assert text(one).partition("-3 ")[2] == "\\x1b[2J id=a\\nb name=[red] \\x07=\\u202e"
    assert toned(event_line(one)).plain == text(one)


def test_events_have_the_tone_of_what_happened() -> None:
    tones = {kind: event_line(event(name=kind))[2].tone for kind in ("completed", "failed", "dlq")}
    assert tones == {"completed": "good", "failed": "warn", "dlq": "bad"}
