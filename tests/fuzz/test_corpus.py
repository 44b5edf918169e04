"""The contract of every fuzzed target, on the kept corpus and on random inputs; no atheris."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.delayed import URL
from tests.fuzz.kit import Check
from tests.fuzz.seeds import CORPUS, corpus
from tests.fuzz.targets import TARGETS
from tests.servers import DIALECTS, Servers

MOST_BYTES = 300_000


@pytest.fixture(scope="module", params=[*TARGETS])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def check(name: str, servers: Servers) -> Iterator[Check]:
    target = TARGETS[name]
    with pytest.MonkeyPatch.context() as patch:
        if target.needs_server:
            patch.setenv(URL, servers.shared(DIALECTS[-1]).url)
        with target.opened() as check:
            yield check


def test_what_was_worth_keeping_is_still_handled(name: str, check: Check) -> None:
    inputs = corpus(name)
    assert len(inputs) > 5
    for data in inputs:
        check(data)


@st.composite
def changed(draw: st.DrawFn, name: str) -> bytes:
    """An input of the corpus, some of its bytes changed, cut out or put in."""
    data = bytearray(draw(st.sampled_from(corpus(name))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


@settings(max_examples=200, suppress_health_check=[*HealthCheck])
@given(chosen=st.data())
def test_whatever_comes_is_handled(name: str, check: Check, chosen: st.DataObject) -> None:
    check(chosen.draw(st.binary(max_size=64) | changed(name)))


def test_the_corpus_stays_small() -> None:
    assert {path.parent.name for path in CORPUS.rglob("*.bin")} <= set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*.bin")) < MOST_BYTES
