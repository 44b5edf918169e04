from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

from hypothesis import given
from hypothesis import strategies as st

from chasquimq.wire import Mint
from chasquimq.wire.ulid import derived

ALPHABET = set(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
NOW = 1794771724337  # the millisecond of the recorded id 01M7GBPA1H...


def test_an_id_is_a_ulid_of_its_millisecond() -> None:
    mint = Mint()
    for job_id in (mint.one(NOW), *mint.many(NOW, 3)):
        assert len(job_id) == 26
        assert set(job_id) <= ALPHABET
        assert job_id.startswith(b"01M7GBPA1H")


@given(st.lists(st.integers(0, 2**48 - 1), min_size=2, max_size=2, unique=True))
def test_ids_sort_by_time(times: list[int]) -> None:
    mint = Mint()
    early, late = sorted(times)
    assert mint.one(early) < mint.one(late)
    assert mint.many(early, 1) < mint.many(late, 1)
    assert mint.one(2**48 - 1)[0:1] == b"7"


def test_no_id_comes_twice() -> None:
    mint = Mint()
    made = [mint.one(NOW) for _ in range(5_000)] + mint.many(NOW, 5_000) + mint.many(NOW, 0)
    assert len({*made}) == 10_000
    assert {*b"".join(job_id[10:] for job_id in made)} == ALPHABET


def test_threads_may_share_a_mint() -> None:
    mint = Mint()
    made: list[bytes] = []

    def work(now_ms: int) -> None:
        made.extend(mint.one(now_ms + at % 2) for at in range(3_000))

    threads = [threading.Thread(target=work, args=(NOW + at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({*made}) == 12_000


FORKING = """
import os
from chasquimq.wire import Mint
from chasquimq.wire.ulid import derived

mint = Mint()
mint.one(0)  # fills the pool that a fork copies
child = os.fork()
os.write(1, b" ".join(mint.one(0) for _ in range(100)) + b" ")  # in one piece
if child:
    os.waitpid(child, 0)
"""


def test_a_child_process_does_not_mint_its_parents_ids() -> None:
    # In a process of its own: forking a test run with threads is asking for trouble.
    run = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True)
    assert len(run.stdout.split()) == len({*run.stdout.split()}) == 200


def test_a_mint_nobody_uses_is_forgotten() -> None:
    mint = Mint()
    gone = weakref.ref(mint)
    del mint
    gc.collect()
    assert gone() is None


@given(st.binary(min_size=10, max_size=10), st.integers(0, 5_000), st.integers(0, 2_500))
def test_derived_ids_are_the_same_each_time_and_all_different(
    seed: bytes, first: int, count: int
) -> None:
    ids = derived(NOW, seed, first, count)
    assert len({*ids}) == len(ids) == count
    for job_id in ids[:3]:
        assert len(job_id) == 26
        assert set(job_id) <= ALPHABET
        assert job_id.startswith(b"01M7GBPA1H")
    half = count // 2
    assert derived(NOW, seed, first, half) + derived(NOW, seed, first + half, count - half) == ids


def test_derived_ids_count_up_and_around() -> None:
    first = derived(NOW, bytes(10), 0, 1_025)
    assert first == sorted(first)
    assert first[1] == b"01M7GBPA1H0000000000000001"
    assert first[1_024] == b"01M7GBPA1H0000000000000100"
    last = derived(NOW, b"\xff" * 10, 0, 2)
    assert last == [b"01M7GBPA1HZZZZZZZZZZZZZZZZ", first[0]]
