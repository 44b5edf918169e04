"""`tools/trace.py` follows real operations on a server of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tools import trace


def traced(capsys: pytest.CaptureFixture[str], *operations: str) -> dict[str, Any]:
    trace.main([*operations, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert list(answer) == list(operations)
    for told in answer.values():
        steps = [(step["file"], step["function"]) for step in told["walk"]]
        assert told["calls"] == len(steps)
        assert told["functions"] == len(set(steps)) > 10
        assert told["files"] == len({file for file, _ in steps}) > 3
        assert told["changes"] >= told["files"] - 1
    return answer


def test_an_add_and_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    answer = traced(capsys, "add", "run-job")
    added, ran = ([step["function"] for step in answer[name]["walk"]] for name in answer)
    assert added.count("Queue.add") == 1
    assert "Queue.add" not in ran  # the job comes from elsewhere


def test_each_operation_has_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trace.main(["--help"])
    told = capsys.readouterr().out
    assert all(f"\n{name} " in told for name in trace.OPERATIONS)
