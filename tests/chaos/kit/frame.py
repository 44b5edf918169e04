"""Cut a RESP byte stream into whole frames, without understanding them.

Requests and replies share one grammar: a type byte, a line, and for some types a body or a
number of nested frames. The reader keeps its place, so a frame that comes in a thousand pieces
is walked over once.
"""

from __future__ import annotations

_BODY = b"$=!"
_NESTED = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}


class Frames:
    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._missing = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Take more bytes, return the frames that are now complete, byte for byte."""
        self._buffer += data
        frames = []
        while self._walk():
            frames.append(bytes(self._buffer[: self._at]))
            del self._buffer[: self._at]
            self._at, self._missing = 0, 1
        return frames

    def _walk(self) -> bool:
        buffer = self._buffer
        while self._missing:
            line_end = buffer.find(b"\r\n", self._at)
            if line_end < 0:
                return False
            kind, after = buffer[self._at], line_end + 2
            nested = 0
            if kind in _BODY:
                size = int(buffer[self._at + 1 : line_end])
                after += size + 2 if size >= 0 else 0
            elif kind in _NESTED:
                nested = max(0, int(buffer[self._at + 1 : line_end])) * _NESTED[kind]
                # An attribute stands before the frame it describes.
                nested += kind == ord("|")
            if after > len(buffer):
                return False
            self._at = after
            self._missing += nested - 1
        return True


def command(request: bytes) -> str:
    """The name of the command a request frame carries, upper case; inline ones too."""
    if not request.startswith(b"*"):
        return request.split(maxsplit=1)[0].decode().upper() if request.strip() else ""
    return request.split(b"\r\n", 3)[2].decode().upper()


def is_push(reply: bytes) -> bool:
    """Push frames come unasked and answer no request."""
    return reply.startswith(b">")
