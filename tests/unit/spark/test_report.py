"""The report's pure parts: what it refuses, how it thins, what it says, how it is written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import ConfigError
from chasquimq.spark.report import ReportData, page, write_page
from chasquimq.spark.report.data import COUNTS, TIMES
from chasquimq.spark.report.headline import differences, tiles
from chasquimq.spark.report.palette import DARK, LIGHT
from chasquimq.spark.report.section import sections_of
from chasquimq.spark.report.series import grid_of, most_points, series_of, thinned_depth, together
from chasquimq.spark.report.view import MOST_VIEWS, views_of
from tests.browser import sample


def changed(data: ReportData, **more: Any) -> ReportData:
    return msgspec.structs.replace(data, **more)


def test_importing_it_brings_neither_spark_nor_plots() -> None:
    program = "import sys, chasquimq.spark.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert not {"pyspark", "pandas", "plotly"} & set(done.stdout.split())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"every_ms": 0}, "every_ms must be at least 1"),
        ({"made_at": datetime(2026, 1, 1)}, "made_at has no zone"),  # noqa: DTZ001
        ({"end": sample.BEGIN - timedelta(days=1)}, "ends after it begins"),
        ({"totals": ({"queue": "a"},)}, "a row of `totals` lacks jobs, started"),
        (
            {"depth": ({"queue": "a", "at": datetime(2026, 1, 1), "waiting": 1, "running": 1},)},  # noqa: DTZ001
            "depth.at has no zone",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused(more: dict[str, Any], said: str) -> None:
    whole = {name: getattr(sample.report(("a",)), name) for name in ReportData.__struct_fields__}
    with pytest.raises(ConfigError, match=said):
        ReportData(**{**whole, **more})


@given(
    windows=st.lists(st.integers(0, 5_000), min_size=1, max_size=60),
    every_ms=st.sampled_from([1, 1_000, 60_000, 3_600_000]),
    most=st.integers(1, 40),
)
def test_thinning_keeps_totals_and_peaks(windows: list[int], every_ms: int, most: int) -> None:
    rows = tuple(
        sample.window("a", place, 5_001, every_ms, sample.random.Random(place), 1)
        for place in windows
    )
    end = sample.BEGIN + timedelta(milliseconds=every_ms)
    data = sample.report(("a",), every_ms, end, windows=rows)
    grid = grid_of(data, most)
    assert grid is not None
    assert grid.size <= most
    series = series_of(rows, grid)["a"]
    for measure in COUNTS:
        assert series.total(measure) == sum(row[measure] for row in rows)
    for measure in TIMES:
        known = [row[measure] for row in rows if row[measure] is not None]
        drawn = [value for value in series.times[measure] if value is not None]
        assert max(drawn, default=None) == max(known, default=None)


def test_queues_add_up_in_what_is_shown_of_all_of_them() -> None:
    data = sample.usual(windows=30)
    grid = grid_of(data, 7)
    assert grid is not None
    whole = together([*series_of(data.windows, grid).values()], grid)
    for measure in COUNTS:
        assert whole.total(measure) == sum(row[measure] for row in data.totals)


def test_a_silent_time_has_its_place() -> None:
    row = sample.usual(queues=("a",), windows=1).windows[0]
    data = sample.report(
        ("a",), windows=(row | {"window_start": sample.BEGIN + timedelta(hours=3)},)
    )
    grid = grid_of(data, 720)
    assert grid is not None
    assert (grid.size, grid.place(grid.start_ms), grid.merged) == (288, 0, 1)
    assert series_of(data.windows, grid)["a"].counts["completed"].index(row["completed"]) == 36


def test_of_depth_the_peaks_are_kept() -> None:
    rows = sample.usual(queues=("a",)).depth
    thin = thinned_depth(rows, 10)
    assert len(thin) <= 10
    for key in ("waiting", "running"):
        assert max(row[key] for row in thin) == max(row[key] for row in rows)
    assert [row["at"] for row in thin] == sorted(row["at"] for row in thin)


def test_many_queues_get_fewer_points_and_not_all_a_view() -> None:
    assert most_points(1) == 720
    assert most_points(200) == 180
    queues = tuple(f"q{number:03}" for number in range(MOST_VIEWS + 9))
    data = sample.usual(queues=queues, windows=2)
    assert len(views_of(data)) == MOST_VIEWS + 1
    assert "9 queues have no view of their own" in page(data)


def test_what_is_missing_is_no_number() -> None:
    nothing = float("nan")
    data = sample.usual(queues=("a",), windows=4)
    blank = dict.fromkeys(TIMES, nothing)
    data = changed(
        data,
        windows=tuple(row | blank for row in data.windows),
        names=tuple(row | blank | {"failure_rate": nothing} for row in data.names),
        heat=tuple(row | {"wait_p95_ms": nothing, "wait_p50_ms": nothing} for row in data.heat),
    )
    assert "NaN" not in page(data).partition('id="model">')[2].partition("</script>")[0]
    by_title = {tile.title: tile for tile in tiles(data, views_of(data)[0])}
    assert by_title["p95 wait"].value == "–"
    plots = {
        plot.key: plot for section in sections_of(data, views_of(data)) for plot in section.plots
    }
    assert (
        plots["latency"].figures == plots["heat"].figures == plots["names-slow"].figures == [None]
    )


def test_the_head_says_what_was_counted() -> None:
    rows = tuple(
        row | {"started": 1, "wait_p95_ms": ms, "completed": 3, "failed": 1}
        for row, ms in zip(
            sample.usual(queues=("a",), windows=3).windows, (10, 30, 900), strict=True
        )
    )
    data = sample.report(("a",), windows=rows, totals=sample.totals(rows))
    said = {tile.title: (tile.value, tile.said) for tile in tiles(data, views_of(data)[0])}
    assert said["jobs completed"][0] == "9"
    assert said["failure rate"][0] == "25.0 %"
    assert said["p95 wait, typical"] == ("30 ms", "at most 900 ms, 11-16 00:10")


def test_windows_and_totals_that_differ_are_told() -> None:
    data = sample.usual(windows=3)
    assert differences(data) == []
    assert len(differences(changed(data, totals=()))) == len(COUNTS)


def test_a_page_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = sample.report(("a",))
    target = tmp_path / "new folder" / "report.html"
    assert write_page(data, str(target)) == target
    assert target.read_text(encoding="utf-8") == page(data)
    assert target.stat().st_mode & 0o777 == 0o644
    inode = target.stat().st_ino
    write_page(data, target)
    assert target.stat().st_ino != inode  # another file in its place, not the same one overwritten

    folder = tmp_path / "a-folder"
    folder.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_page(data, folder)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    old = target.read_bytes()
    with pytest.raises(ConfigError, match=r"pip install 'chasquimq-py\[report\]'"):
        write_page(data, target)
    assert target.read_bytes() == old
    assert sorted(os.listdir(tmp_path)) == ["a-folder", "new folder"]
    assert os.listdir(target.parent) == ["report.html"]


def test_a_page_that_cannot_be_written_is_named_and_not_left(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    heard = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large") as refused:
            write_page(sample.report(("a",)), target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, heard)
    assert refused.value.filename == str(target)
    assert os.listdir(target.parent) == []


def test_a_page_for_a_named_pipe_goes_into_it(tmp_path: Path) -> None:
    """No file takes its place, nor that of a device."""
    data, pipe, came = sample.report(("a",)), tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: came.append(pipe.read_text("utf-8")), daemon=True)
    reader.start()
    assert write_page(data, pipe) == pipe and pipe.is_fifo()
    reader.join()
    assert came == [page(data)]


TEXTS = ("text", "quiet", "link", "bad", "good")
MARKS = ("completed", "failed", "retried", "buried", "waiting", "running", "p50", "p95", "p99")
MARKS += (*(f"q{place}" for place in range(7)), "rest")


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_what_is_behind_them(colours: dict[str, str]) -> None:
    for role in TEXTS:
        assert contrast(colours[role], colours["panel"]) >= 4.5, role
    for role in ("text", "quiet", "link"):
        assert contrast(colours[role], colours["ground"]) >= 4.5, role
    assert contrast(colours["text"], colours["warn"]) >= 4.5
    for role in MARKS:
        assert contrast(colours[role], colours["panel"]) >= 3, role


def contrast(one: str, other: str) -> float:
    """The ratio that the accessibility guidelines for the web define."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
