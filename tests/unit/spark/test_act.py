"""What one script call carries, how jobs are cut into pages, how a rate is shared out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from chasquimq.spark.act.choice import PAGE, Choice
from chasquimq.spark.act.dead import TASK_RATE, TASKS, share_out
from chasquimq.spark.act.task import CALL_BYTES, Row, calls
from chasquimq.wire import Revival


def row(place: int, size: int = 10) -> Row:
    return Row(place, f"{place}-0", None, Revival(f"{place}-0", b"x" * size, b""))


def sizes(rows: list[Row], most: int = PAGE) -> list[int]:
    called = list(calls(rows, most))
    assert [one for call in called for one in call] == rows
    return [len(call) for call in called]


def test_a_call_is_bounded_by_rows_and_bytes() -> None:
    assert sizes([]) == []
    assert sizes([row(n) for n in range(7)], most=3) == [3, 3, 1]
    third = CALL_BYTES // 3
    assert sizes([row(n, third) for n in range(7)]) == [3, 3, 1]
    assert sizes([row(0, 5 * CALL_BYTES), row(1), row(2, 5 * CALL_BYTES)]) == [1, 1, 1]
    assert sizes([row(0)._replace(revival=None), row(1, CALL_BYTES)]) == [2]


def test_pages_have_a_bit_for_each_job_of_a_queue() -> None:
    queues = ["a"] * (PAGE + 1) + ["b"] * 2
    ids = [f"{n}-0" for n in range(len(queues))]
    pages = Choice(pa.table({"queue": queues, "entry_id": ids})).pages().to_pylist()
    told = [(page["queue"], page["bit"], len(page["entry_ids"])) for page in pages]
    assert told == [("a", 0, PAGE), ("a", PAGE, 1), ("b", 0, 2)]
    assert [one for page in pages for one in page["entry_ids"]] == ids


@pytest.mark.parametrize("jobs", [1, PAGE, PAGE + 1, 1_000_000])
@pytest.mark.parametrize("rate", [None, 0.5, TASK_RATE, TASK_RATE + 1, 1e9])
def test_a_rate_is_shared_out(jobs: int, rate: float | None) -> None:
    tasks, each = share_out(jobs, rate)
    assert 1 <= tasks <= TASKS
    assert tasks <= -(-jobs // PAGE), "a task without a page"
    if rate is None:
        assert each is None
    else:
        assert each is not None and each * tasks == pytest.approx(rate)
        assert rate > TASK_RATE or tasks == 1
