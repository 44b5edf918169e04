"""Values and texts of strangers as a report shows them."""

from __future__ import annotations

import html
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.spark.report.figure import ticks_for
from chasquimq.spark.report.show import count, duration, label, number, percent, script_json, text


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0, "0 ms"),
        (0.04, "0.04 ms"),
        (1, "1 ms"),
        (12.34, "12.3 ms"),
        (999, "999 ms"),
        (1_250, "1.25 s"),
        (60_000, "1 min"),
        (200_000, "3.33 min"),
        (3_600_000, "1 h"),
        (864_000_000, "10 d"),
    ],
)
def test_a_duration_has_two_or_three_digits(ms: float | None, shown: str) -> None:
    assert duration(ms) == shown


def test_counts_and_shares() -> None:
    assert count(1_234_567) == "1,234,567"
    assert [percent(share) for share in (None, 0, 0.0342, 0.5)] == ["–", "0 %", "3.42 %", "50.0 %"]
    assert number(float("inf")) is None


@given(st.text() | st.sampled_from(["</script>", "<!--", "\u2028", "%{x}", "$a$", "&lt;"]))
def test_no_text_keeps_what_a_browser_or_the_library_reads(given_text: str) -> None:
    escaped = text(given_text, 10_000)
    assert not {"<", ">", '"', "'"} & {*escaped}
    assert escaped.isprintable()
    read = label(given_text, 10_000)
    assert not {"<", ">", "%", "$"} & {*read}
    assert html.unescape(read) == (html.unescape(escaped) or "(no name)")


@given(
    st.recursive(st.text() | st.integers() | st.none(), lambda part: st.lists(part), max_leaves=9)
)
def test_data_in_a_script_is_the_same_data_and_ends_nothing(value: object) -> None:
    inside = script_json(value)
    assert inside.isascii()
    assert not {"<", ">", "&"} & {*inside}
    assert json.loads(inside) == value


@given(st.lists(st.floats(0, 1e10), max_size=5))
def test_a_scale_of_time_has_some_names_and_not_too_many(values: list[float]) -> None:
    assert 1 <= len(ticks_for(values)) <= 14
