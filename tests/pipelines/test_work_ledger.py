"""What a ledger writes of what a Worker tells it, without Spark and without Redis."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq.job import Again, Dead, Reason
from chasquimq.observe.metrics import DlqRouted
from chasquimq.spark.task import ledger
from chasquimq.spark.task.ledger import SCHEMA, Ledger
from chasquimq.trace import Run

RUN = Run("mail", "default", "a", "welcome", 3, 0, 0)


@pytest.fixture
def written() -> Ledger:
    return Ledger("r", "mail", 7, "spark-r-7")


def rows(of: Ledger) -> list[dict[str, Any]]:
    taken: list[Any] = []
    of.hand_on = lambda batch: taken.extend(batch.to_pylist())
    of.close()
    return taken


def begun(of: Ledger, run: Run = RUN) -> ledger.Line:
    line = of.running(run)
    line.enter()
    return line


def test_a_row_has_the_columns_of_the_schema(written: Ledger) -> None:
    begun(written).completed()
    [row] = rows(written)
    assert list(row) == SCHEMA.names
    assert (row["job_id"], row["attempt"], row["outcome"]) == ("a", 3, "completed")
    assert (row["task"], row["consumer"], row["error"]) == (7, "spark-r-7", None)
    assert rows(written) == [], "it was taken"


def test_a_burial_is_one_row_and_one_without_a_run_is_another(written: Ledger) -> None:
    begun(written).failed(ValueError("no"), Dead(3, Reason.RETRIES_EXHAUSTED))
    for _ in range(2):
        written.dlq_routed(DlqRouted("retries_exhausted", 3, "welcome"))
    first, second = rows(written)
    assert (first["job_id"], first["error_type"], first["error"]) == ("a", "ValueError", "no")
    assert (second["job_id"], second["error"], second["duration_us"]) == (None, None, None)
    assert {row["outcome"] for row in (first, second)} == {"buried"}
    assert {row["reason"] for row in (first, second)} == {"retries_exhausted"}


@pytest.mark.parametrize(("why", "outcome"), [("lease lost", "lost"), ("given back", "given_back")])
def test_a_run_that_does_not_count(written: Ledger, why: str, outcome: str) -> None:
    begun(written).dropped(why)
    assert [row["outcome"] for row in rows(written)] == [outcome]


def test_a_full_page_is_handed_on(written: Ledger) -> None:
    pages: list[int] = []
    written.hand_on = lambda batch: pages.append(batch.num_rows)
    for _ in range(ledger.BATCH - 1):
        begun(written).failed(ValueError(), Again(3, 100))
    assert pages == []
    begun(written).completed()
    begun(written).completed()
    assert pages == [ledger.BATCH]
    written.close()
    assert pages == [ledger.BATCH, 1]


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Mute(), ""),
        (ValueError("half \ud800 a character"), "half ? a character"),
        (ValueError("x" * 10_000), "x" * 4_096),
    ],
)
def test_whatever_an_error_says_fits_a_row(written: Ledger, error: Exception, text: str) -> None:
    begun(written, RUN._replace(name="\ud800")).failed(error, Again(3, 100))
    assert [(row["error"], row["name"]) for row in rows(written)] == [(text, "?")]
