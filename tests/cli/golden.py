"""Recorded output: `tests/cli/golden/<name>.txt` holds what a command showed when it was right.

What differs from run to run (ids, times, the queue's name) is put into words first. To record
anew, look at the difference, and if it is meant, delete the file and run the test twice: the
first run writes the file and fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def same(name: str, text: str, words: Mapping[str, str] | None = None) -> None:
    """Compare with the recorded text; `words` are patterns and what stands for them."""
    for pattern, word in (words or {}).items():
        text = re.sub(pattern, lambda found, word=word: word.ljust(len(found[0])), text)
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    file = FOLDER / f"{name}.txt"
    if not file.exists():
        FOLDER.mkdir(exist_ok=True)
        file.write_text(text)
        raise AssertionError(f"recorded {file.name}: look at it, and run the test again")
    assert text == file.read_text()
