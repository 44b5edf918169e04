"""What processes write to stderr, and their supervisor passes on: whole, safely, in bounded memory,
and without holding up whoever writes."""

from __future__ import annotations

import os
import re
import signal
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from chasquimq.cli.crew.words import LAST, LONGEST, Words
from tests.cli.crew import Crew, page, until
from tests.cli.kit import Chasqui

NOISY = "tests.cli.crew_noisy:worker"
MB = 1_000_000
FLOOD = 50 * MB
ROOM_MB = 24  # that a supervisor may grow by, whatever it is told


def peak_mb(pid: int) -> float:
    """The most memory that a process ever had."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.parametrize("what", [b"x", b"\xff", "é".encode()], ids=["text", "invalid", "accents"])
def test_50_mb_without_a_newline_come_out_in_pieces(
    native: Chasqui, queue_name: str, tmp_path: Path, what: bytes
) -> None:
    with Crew(native, queue_name, target=NOISY, out=tmp_path) as crew:
        before = peak_mb(crew.begins().process.pid)
        crew.add("flood", data=(what, FLOOD // len(what)))
        until(lambda: crew.ended)
        peak = peak_mb(crew.process.pid)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
    shown = what.decode(errors="backslashreplace")
    pieces = [line for line in crew.said.splitlines() if shown * 3 in line]
    assert sum(line.count(shown) for line in pieces) == FLOOD // len(what), "all of it, and whole"
    assert max(len(line) for line in pieces) <= LONGEST * len(shown)
    assert len(pieces) < 3 * FLOOD / LONGEST
    assert peak - before < ROOM_MB


def test_a_progress_bar_is_passed_on_while_it_moves(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, target=NOISY, out=tmp_path) as crew:
        crew.begins().add("hold", data=(b"\r 10%|#   |\r 20%|##  |\r\r 30%|### |\r", 1))
        crew.hears(" 30%|### |\n")  # it has ended no line yet
        assert " 10%|#   |\n 20%|##  |\n 30%|### |\n" in crew.said
        crew.let_go()
        until(lambda: crew.ended)


def test_what_a_terminal_obeys_is_escaped(native: Chasqui, queue_name: str, tmp_path: Path) -> None:
    with Crew(native, queue_name, target=NOISY, out=tmp_path) as crew:
        crew.begins().add(
            "tell", data=("\x1b[31mred\x07\x9b2J\u202e\tend \\x1b é 漢\n".encode() + b"\xfe\n", 1)
        )
        crew.hears("\\xfe\n")
        assert "\\x1b[31mred\\x07\\x9b2J\\u202e\tend \\x1b é 漢\n\\xfe\n" in crew.said
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", crew.said)


def test_each_piece_of_several_processes_has_its_name(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with Crew(native, queue_name, "--processes", "2", target=NOISY, out=tmp_path) as crew:
        crew.begins()
        until(lambda: crew.reading() == 2)
        for letter in (b"a", b"b") * 4:
            crew.add("flood", data=(letter, MB))
        until(lambda: len(crew.ended) == 8)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
    rows = re.findall(r"^\[([12])\] ([ab]+)$", crew.said, re.MULTILINE)
    assert sum(len(text) for _, text in rows) == 8 * MB, "no piece lies within another"
    assert max(len(text) for _, text in rows) <= LONGEST
    assert len({number for number, _ in rows}) == 2


def test_the_last_words_of_a_flood_are_told(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    login = b" redis://app:hunter22@there "  # not a secret
    words = b"." * 100_000 + login + b"-" * 100 + b" the very end"
    with Crew(native, queue_name, target=NOISY, out=tmp_path) as crew:
        crew.begins().add("die", data=(words, 1))
        crew.hears("starting again")
        [line] = [line for line in crew.said.splitlines() if "starting again" in line]
        assert "exit code 7: …" in line and "the very end; starting again" in line
        assert "hunter22" not in line and len(line) < 1_000


# -- nobody reads --------------------------------------------------------------------------------


class Unread(Crew):
    """One whose stderr nobody reads until it is asked for."""

    heard = b""

    @property
    def said(self) -> str:
        return self.heard.decode()

    def hear(self, end: int) -> str:
        """Read what there is."""
        with suppress(BlockingIOError):
            while data := os.read(end, 65_536):
                self.heard += data
        return self.said


@contextmanager
def unread(chasqui: Chasqui, queue: str, out: Path, *args: str) -> Iterator[tuple[Unread, int]]:
    os.mkfifo(out / "crew.log")
    end = os.open(out / "crew.log", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Unread(chasqui, queue, *args, target=NOISY, out=out) as crew:
            yield crew, end
    finally:
        os.close(end)


def test_a_worker_goes_on_though_nobody_reads_what_it_writes(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with unread(native, queue_name, tmp_path, "--metrics", "127.0.0.1:0") as (crew, end):
        until(lambda: "stop     Ctrl-C" in crew.hear(end))
        port, before = crew.port(), peak_mb(crew.process.pid)
        crew.add("flood", 5, data=(b"0123456789abcdef" * 5 + b"\n", 250_000))  # 20 MB each
        until(lambda: len(crew.ended) == 5)
        assert page(port, "/livez")[0] == 200
        until(lambda: page(port, "/readyz")[0] == 200)
        assert peak_mb(crew.process.pid) - before < ROOM_MB
        os.set_blocking(end, True)
        reader = threading.Thread(target=crew.hear, args=(end,))
        reader.start()  # now somebody does
        until(lambda: b"were left out" in crew.heard)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0
        reader.join()
    [told] = re.findall(
        r"WARNING.* (\d+) lines of processes \((\d+) bytes\) were left out", crew.said
    )
    passed = len(re.findall(r"^(?:0123456789abcdef){5}$", crew.said, re.MULTILINE))
    assert passed + int(told[0]) == 5 * 250_000, "each line was passed on, or counted"
    assert int(told[1]) == int(told[0]) * 81
    assert "5 jobs done" in crew.said


def test_a_worker_stops_though_nobody_reads_what_it_writes(
    native: Chasqui, queue_name: str, tmp_path: Path
) -> None:
    with unread(native, queue_name, tmp_path) as (crew, _):
        until(crew.reading)
        crew.add("flood", data=(b"x", 3 * MB))
        until(lambda: crew.ended)
        crew.signal(signal.SIGTERM)
        assert crew.ends() == 0


# -- the rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        ([b"one\ntwo\n"], [b"one", b"two"]),
        ([b"o", b"ne\nt", b"wo"], [b"one", b"two"]),
        ([b"one\r\ntwo\r\n"], [b"one", b"two"]),
        ([b"one\r", b"\ntwo\n"], [b"one", b"two"]),
        ([b"one\r", b"two\n"], [b"one", b"two"]),
        ([b"\r\r1%\r\r2%\r"], [b"1%", b"2%"]),
        ([b"one\n\n\r\ntwo"], [b"one", b"", b"", b"two"]),
        ([b"a\x0bb\x0cc\x1cd\x85e\n"], [b"a\x0bb\x0cc\x1cd\x85e"]),
        ([b""], []),
    ],
)
def test_lines_end_where_they_are_ended(written: list[bytes], lines: list[bytes]) -> None:
    words = Words()
    assert [*(line for data in written for line in words.feed(data)), *words.end()] == lines


@pytest.mark.parametrize("character", ["x", "é", "漢", "🦙"])
@pytest.mark.parametrize("before", [0, 1, 2, 3])
@pytest.mark.parametrize("step", [1_000, 65_536, 300_000])
def test_no_character_is_cut_in_two(character: str, before: int, step: int) -> None:
    text = "a" * before + character * 100_000
    data, words = text.encode(), Words()
    pieces = [one for at in range(0, len(data), step) for one in words.feed(data[at : at + step])]
    pieces += words.end()
    assert "".join(piece.decode() for piece in pieces) == text
    assert all(LONGEST - 3 <= len(piece) <= LONGEST for piece in pieces[:-1])


def test_bytes_that_are_no_characters_are_cut_all_the_same() -> None:
    words = Words()
    pieces = [*words.feed(b"\x80" * 200_000), *words.end()]
    assert [len(piece) for piece in pieces] == [LONGEST] * 3 + [200_000 - 3 * LONGEST]


@pytest.mark.parametrize("step", [1, 7, 4_096, 65_536])
def test_the_work_for_a_byte_does_not_grow_with_what_is_held(step: int) -> None:
    """Counted in bytes that are allocated: what is held is not copied for each byte that comes."""
    words, data, allocated = Words(), b"x" * step, 0
    count = min(30_000, 1_000_000 // step)
    tracemalloc.start()
    try:
        for _ in range(count):
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in words.feed(data):
                pass
            allocated += tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert allocated < 1_000 * count + 20 * step * count


def test_the_last_words_are_the_end_of_the_last_line() -> None:
    words = Words()
    for data, last in (
        (b"one\n \n\r", "one"),
        (b"two", "one"),
        (b" three\r", "two three"),
        (b"x" * 3_000 + b" end\n", "x" * 3_000 + " end"),
    ):
        list(words.feed(data))
        assert words.last() == last
    list(words.feed(b"pass" * LAST + b"word@there it is " + b"-" * LONGEST + b" boom\n"))
    assert words.last().startswith("…") and words.last().endswith("- boom")
    assert len(words.last()) <= 300


def test_half_of_a_login_is_not_among_the_last_words() -> None:
    words = Words()
    list(words.feed(b"redis://app:" + b"hunter22" * 600 + b"@there\n"))
    assert words.last() == "…there"
