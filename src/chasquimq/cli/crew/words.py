"""What a process writes to stderr, as lines of a bounded length. Pure.

1. a line ends with a newline, or with a carriage return: a progress bar shows as it moves. What is
   longer than 64 KiB goes on in the next line, and no character is cut in two;
2. each byte is looked at and copied a few times, however much came before it without an end;
3. the end of the last line that is not blank is kept, to explain why the process ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from chasquimq.text import discreet

LONGEST = 65_536  # bytes of a line
LAST = 4_096  # bytes of the last words
TOLD = 300  # characters of them, where they are the end of a longer line


class Words:
    def __init__(self) -> None:
        self._held = bytearray()  # of a line without an end
        self._returned = False  # the last line ended with a carriage return: a newline may follow
        self._continues = False  # what is held goes on with a line that was too long
        self._last = b""
        self._torn = False  # the last words lack their beginning

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that it ends."""
        if self._returned and data.startswith(b"\n"):
            data = data[1:]
        self._returned = False
        for part in data.splitlines(keepends=True):
            text = part.rstrip(b"\r\n")
            self._held += text
            while len(self._held) > LONGEST:
                yield self._take(_cut(self._held), ended=False)
            self._returned = part.endswith(b"\r")
            if len(text) < len(part) and (self._held or not self._returned):
                yield self._take(len(self._held), ended=True)

    def end(self) -> Iterator[bytes]:
        """What never ended."""
        if self._held:
            yield self._take(len(self._held), ended=True)

    def last(self) -> str:
        words = self._last.decode(errors="replace").strip()
        if not self._torn:
            return words
        # Half of a URL does not look like one, and would show half of its password.
        first = words.split(maxsplit=1)[0] if words else ""
        return f"…{discreet(words[first.rfind('@') + 1 :])[1 - TOLD :]}"

    def _take(self, size: int, *, ended: bool) -> bytes:
        line = bytes(self._held[:size])
        del self._held[:size]
        if line.strip():
            before = self._last if self._continues else b""
            self._torn = len(before) + len(line) > LAST or (self._continues and self._torn)
            self._last = (before + line[-LAST:])[-LAST:]
        self._continues = not ended
        return line


def _cut(held: bytearray) -> int:
    """Where to cut it: not before a byte that goes on with a character."""
    for at in range(LONGEST, LONGEST - 4, -1):
        if held[at] & 0xC0 != 0x80:
            return at
    return LONGEST  # those are no characters
