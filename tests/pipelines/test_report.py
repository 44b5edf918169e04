"""From what a worker did to the page that people open: the same numbers all the way."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pyspark.sql import SparkSession

from chasquimq import Job, Queue, RepeatPattern, RetryError, UnrecoverableError, Worker
from chasquimq.spark.lake.table import read
from chasquimq.spark.pipelines.summary import LENGTHS, WINDOWS, length_for
from tests.browser.conftest import browser
from tests.browser.kit import opened
from tests.cli.kit import Chasqui
from tests.examples.page import ROOT
from tests.servers import DIALECTS, DialectServer, Servers

__all__ = ["browser"]
PLOTS = {"throughput", "latency", "failures", "depth", "heat", "names-fail", "clusters"}


@pytest.fixture
def server(servers: Servers) -> DialectServer:
    return servers.shared(DIALECTS[0])


class Shop:
    """Jobs that end in every way, and how often each of them was run."""

    def __init__(self, url: str, queue: str) -> None:
        self.url, self.queue = url, queue
        self.ran: Counter[str] = Counter()

    async def handle(self, job: Job) -> None:
        self.ran[job.name] += 1
        if job.name == "flaky" and job.attempt == 0:
            raise RetryError("soon", delay=1)
        if job.name == "bad":
            raise UnrecoverableError(f"no user {job.data}")

    async def live(self) -> None:
        async with Queue(self.queue, redis_url=self.url) as queue:
            for name, many in (("good", 60), ("flaky", 10), ("bad", 5)):
                await queue.add_bulk([{"name": name, "data": n} for n in range(many)])
            await queue.add("tick", None, repeat=RepeatPattern.every(50), limit=3)
            until = {"max_jobs": 60 + 20 + 5 + 3}
            await Worker(self.queue, self.handle, redis_url=self.url, **until).run()


def in_a_thread(shop: Shop) -> None:
    """Beside the browser, which has a loop of its own in this one."""
    from threading import Thread

    thread = Thread(target=lambda: asyncio.run(shop.live()))
    thread.start()
    thread.join()


def test_plots_show_what_the_lake_counts_and_handlers_saw(
    spark: SparkSession,
    server: DialectServer,
    queue_name: str,
    tmp_path: Path,
    browser: Browser,
) -> None:
    shop = Shop(server.url, queue_name)
    in_a_thread(shop)
    lake, out = str(tmp_path / "lake"), tmp_path / "report.html"
    chasqui = Chasqui(server)
    words = ("spark", "run", queue_name, "--lake", lake, "--out", str(out), "--available-now")
    ended = chasqui.call("--redis-url", server.url, *words, "--json")
    assert ended.code == 0, ended.err
    total = json.loads(ended.out)["totals"][queue_name]

    events = read(spark, lake)
    counted = Counter(
        {row.event: row["count"] for row in events.groupBy("event").count().collect()}
    )
    assert counted["active"] == shop.ran.total() == 88
    assert total["events"] == counted.total()
    names = {"started": "active", "completed": "completed", "failed": "failed",
             "retried": "retry-scheduled", "buried": "dlq"}  # fmt: skip
    assert {name: total[name] for name in names} == {
        name: counted[event] for name, event in names.items()
    }
    with opened(browser, out) as seen:
        plots = {plot["key"]: plot for plot in seen.plots()}
        assert plots.keys() >= PLOTS
        for key in PLOTS:
            assert plots[key]["marks"] > 0 and not plots[key]["words"], key
        assert seen.plotted("throughput")["completed"] == counted["completed"]
        assert seen.plotted("failures")["failed"] == counted["failed"]
        assert seen.plotted("failures")["retried"] == counted["retry-scheduled"]
        assert seen.plotted("clusters")["jobs"] == read(spark, lake, "dlq").count() == 5
        assert "tick::every:50" in seen.page.inner_text("body")
    assert seen.is_clean()
    rollup = spark.read.parquet(f"{lake}/rollup").selectExpr("sum(started)").collect()
    assert rollup[0][0] == 88
    report = chasqui.call("spark", "report", "--lake", lake, "--out", str(out))
    assert report.code == 0 and report.out.endswith(f"the report: {out}\n")


def test_a_queue_in_which_nothing_happened_has_a_report(
    spark: SparkSession, server: DialectServer, queue_name: str, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    words = (queue_name, "--lake", str(tmp_path / "lake"), "--out", str(out), "--available-now")
    ended = Chasqui(server).call("--redis-url", server.url, "spark", "run", *words)
    assert ended.code == 0, ended.err
    assert "(no events)" in ended.out and out.exists()


def test_a_window_is_as_long_as_the_page_wants() -> None:
    for length in LENGTHS:
        assert length_for(length * WINDOWS) == length
    assert length_for(LENGTHS[-1] * WINDOWS * 10) == LENGTHS[-1]


def test_the_demo(tmp_path: Path, browser: Browser) -> None:
    """As `make demo` runs it, with fewer seconds of jobs."""
    clean = {key: value for key, value in os.environ.items() if key != "CHASQUI_REDIS_URL"}
    clean["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # it lives for seconds
    ended = subprocess.run(
        [sys.executable, ROOT / "examples/demo.py", "--seconds", "3", "--out", tmp_path / "demo"],
        capture_output=True, text=True, timeout=280, cwd=ROOT, env=clean,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for line in (
        r"server: .*, started for this example",
        r"[\d,]+ runs of handlers, of 7 names",
        r"\$ chasqui spark run shop --available-now .*",
        r"shop +[\d,]+ .*",
        r"shop +import-csv +\d+ +0  100\.0% .*",
        r"[0-9a-f]{10} +\d+ +50% +unrecoverable .*<path> has no header.*",
        r"replayed \d+ of \d+ dead jobs",
        r"repaired, and run again: \d+ jobs",
        r"Done in \d+ s\. The report: .*",
    ):
        assert re.search(rf"^{line}$", ended.stdout, re.MULTILINE), f"{line!r}\n{ended.stdout}"
    with opened(browser, tmp_path / "demo" / "report.html") as seen:
        assert seen.plotted("throughput")["completed"] > 100
    assert seen.is_clean()
