"""How doctor's session ends when it does not end well; `tests/spark/test_install.py` lets it."""

from __future__ import annotations

import pytest

from chasquimq.spark import trial
from chasquimq.spark.trial import Ended, run


def test_one_that_does_not_end_is_ended() -> None:
    assert run("mail", "redis://127.0.0.1:1", 0.01) == Ended(None, "it had not ended after 0 s")


def test_one_that_fails_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.sys, "executable", "/bin/false")
    assert run("mail", "redis://127.0.0.1:1", 60) == Ended(None, "it ended with code 1")


def test_the_cause_is_ours_if_there_is_one() -> None:
    ours = "chasquimq.errors.AccessError: CMQ-001: redis://:***@h wants a password"
    assert trial._cause(f"Traceback\n  File x\n{ours}\n\tat org.apache.Spark\n") == ours
    assert trial._cause("a\n\n b \n") == "b"
    assert trial._cause("") == ""
