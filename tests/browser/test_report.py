"""The report in a browser: it is quiet, asks for nothing, and shows what was counted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser

from chasquimq.spark.report import ReportData
from chasquimq.spark.report.series import MOST_POINTS
from tests.browser import sample
from tests.browser.kit import DESKTOP, PHONE, READY, Scheme, opened, saved

PLOTS = {"throughput", "latency", "failures", "depth", "heat", "names-slow", "names-fail"}
PLOTS |= {"clusters", "schedules", "stuck", "changes"}


@pytest.fixture(scope="module")
def usual() -> ReportData:
    return sample.usual()


@pytest.fixture(scope="module")
def file(usual: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(usual, tmp_path_factory.mktemp("usual"))


def total(data: ReportData, measure: str, queue: str | None = None) -> int:
    return sum(row[measure] for row in data.totals if queue in (None, row["queue"]))


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_drawn_in_silence(
    browser: Browser, file: Path, scheme: Scheme, width: int
) -> None:
    with opened(browser, file, scheme=scheme, width=width) as seen:
        plots = seen.plots()
        assert {plot["key"] for plot in plots} == PLOTS
        for plot in plots:
            assert plot["marks"] > 0, plot["key"]
            assert min(plot["box"]) > 100, plot["key"]
            assert plot["alt"] and not plot["words"]
        assert seen.overflow() <= 0
        assert seen.page.get_attribute("html", "data-theme") == scheme
    assert seen.is_clean()


def test_plots_add_up_to_the_totals_of_all_queues_and_of_each(
    browser: Browser, file: Path, usual: ReportData
) -> None:
    with opened(browser, file) as seen:
        for place, queue in enumerate([None, *sample.QUEUES]):
            seen.choose(place)
            completed = seen.plotted("throughput")["completed"]
            assert completed == total(usual, "completed", queue)
            failures = seen.plotted("failures")
            for measure in ("failed", "retried", "buried"):
                assert failures[measure] == total(usual, measure, queue)
            for key, rows, measure in (
                ("names-fail", usual.names, "failed"),
                ("clusters", usual.clusters, "jobs"),
            ):
                counted = sum(row[measure] for row in rows if queue in (None, row["queue"]))
                assert seen.plotted(key)[measure] == counted
            tile = seen.page.locator(".tiles:visible b").first.inner_text()
            assert tile == f"{completed:,}"
    assert seen.is_clean()


def test_a_queue_shows_its_own_rows_only(browser: Browser, file: Path) -> None:
    with opened(browser, file) as seen:
        seen.choose(2)
        shown = seen.page.locator("#clusters tbody tr:visible td:nth-child(2)").all_inner_texts()
        assert shown == [sample.QUEUES[1]] * len(sample.ERRORS)
        seen.choose(0)
        shown = seen.page.locator("#clusters tbody tr:visible td:nth-child(2)").all_inner_texts()
        assert {*shown} == {*sample.QUEUES}


def test_the_theme_follows_the_system_until_the_button_is_pressed(
    browser: Browser, file: Path
) -> None:
    with opened(browser, file) as seen:
        page = seen.page

        def looks() -> tuple[str, str]:
            page.wait_for_selector(READY)
            ground = "getComputedStyle(document.body).backgroundColor"
            tick = "getComputedStyle(document.querySelector('#throughput .ytick text')).fill"
            return page.evaluate(ground), page.evaluate(tick)

        light = looks()
        page.emulate_media(color_scheme="dark")
        page.wait_for_selector("html[data-theme=dark][data-ready]")
        dark = looks()
        assert light[0] != dark[0] and light[1] != dark[1]
        page.click("#theme")
        page.wait_for_selector("html[data-theme=light][data-ready]")
        assert looks() == light
        page.emulate_media(color_scheme="light")
        page.emulate_media(color_scheme="dark")
        assert page.get_attribute("html", "data-theme") == "light"
    assert seen.is_clean()


def test_no_button_of_a_plot_sends_anything_anywhere(browser: Browser, file: Path) -> None:
    with opened(browser, file) as seen:
        page = seen.page
        page.locator("#throughput .canvas").hover()
        buttons = page.locator("#throughput .modebar-btn")
        names = {button.get_attribute("data-attr") or "image" for button in buttons.all()}
        assert len(names) == 2 == buttons.count()
        with page.expect_download() as download:
            buttons.first.click()
        picture = download.value.path().read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) > 5_000
        buttons.last.click()
    assert seen.is_clean()


def test_a_plot_over_time_can_be_read_as_a_table(
    browser: Browser, file: Path, usual: ReportData
) -> None:
    with opened(browser, file) as seen:
        seen.choose(1)
        seen.page.click("#failures .rows summary")
        seen.page.wait_for_selector("#failures .rows tbody tr")
        rows = seen.page.locator("#failures .rows tbody tr")
        assert rows.count() == 288
        retried = seen.page.locator("#failures .rows tbody td:nth-child(2)").all_inner_texts()
        counted = sum(int(text.replace(",", "")) for text in retried)
        assert counted == total(usual, "retried", sample.QUEUES[0])
    assert seen.is_clean()


def test_a_finger_scrolls_the_page_and_not_the_plot(browser: Browser, file: Path) -> None:
    with opened(browser, file, width=PHONE) as seen:
        modes = seen.page.evaluate(
            "[...document.querySelectorAll('.canvas')].map((one) => one._fullLayout.dragmode)"
        )
        assert {*modes} == {False}
        assert seen.page.locator("#throughput .modebar-btn:visible").count() == 0


def test_without_scripts_there_are_figures_and_tables(browser: Browser, file: Path) -> None:
    with opened(browser, file, script=False) as seen:
        assert seen.page.locator(".tiles:visible").count() == 1
        assert seen.page.locator("#clusters tbody tr").count() > 0
        assert "need JavaScript" in seen.page.locator("footer").inner_text()
    assert seen.is_clean()


def test_an_empty_report_says_so_in_words(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, saved(sample.report(()), tmp_path), width=PHONE) as seen:
        plots = seen.plots()
        assert {plot["key"] for plot in plots} == PLOTS - {"changes"}  # which nobody asked for
        for plot in plots:
            assert plot["words"] and not plot["marks"] and not plot["traces"]
        assert seen.page.locator(".warnings").count() == 0
        assert seen.overflow() <= 0
    assert seen.is_clean()


def test_a_single_row_is_seen(browser: Browser, tmp_path: Path) -> None:
    data = sample.usual(queues=("one",), windows=1, names=("only",))
    first = {
        table: getattr(data, table)[:1]
        for table in ("heat", "depth", "clusters", "schedules", "stuck", "deploy")
    }
    failed = {"failed": 1, "retried": 1}
    first["names"] = tuple(row | failed for row in data.names)
    first["windows"] = tuple(row | failed for row in data.windows)
    data = msgspec.structs.replace(data, totals=sample.totals(first["windows"]), **first)
    with opened(browser, saved(data, tmp_path)) as seen:
        for plot in seen.plots():
            assert plot["marks"] > 0, plot["key"]
        assert seen.page.locator("#choice").count() == 0  # there is nothing to choose
        assert seen.plotted("throughput")["completed"] == total(data, "completed")
    assert seen.is_clean()


def test_a_hundred_thousand_windows_are_still_a_small_page(
    browser: Browser, tmp_path: Path
) -> None:
    queues = tuple(f"queue-{number}" for number in range(20))
    data = sample.usual(queues=queues, windows=5_000, every_ms=60_000)
    assert len(data.windows) == 100_000
    file = saved(data, tmp_path)
    assert file.stat().st_size < 8_000_000
    with opened(browser, file) as seen:
        traces = [trace for plot in seen.plots() for trace in plot["traces"]]
        assert max(trace["points"] for trace in traces) <= MOST_POINTS
        assert seen.plotted("throughput")["completed"] == total(data, "completed")
        assert "windows of 1 min" in seen.page.locator("#throughput .how").inner_text()
    assert seen.is_clean()


def test_what_does_not_add_up_is_said_at_the_top(browser: Browser, tmp_path: Path) -> None:
    data = sample.usual(windows=3)
    wrong = tuple(row | {"completed": row["completed"] + 1} for row in data.totals)
    data = sample.usual(windows=3, totals=wrong, warnings=())
    with opened(browser, saved(data, tmp_path)) as seen:
        said = seen.page.locator(".warnings li").all_inner_texts()
        assert len(said) == 1
        assert f"{total(data, 'completed'):,}" in said[0] and "completed" in said[0]
