"""Texts that strangers may send as names, ids, errors and keys, and that want to be more than text.

`MARK` begins a line only where a line was forged.
"""

from __future__ import annotations

MARK = "FORGED"

HOSTILE = {
    "line feed": f"a\n{MARK} 2026-11-18T00:00:00.000Z ERROR root all is lost",
    "carriage return": f"a\r{MARK}\r\n{MARK}",
    "other ends of lines": f"a\x0b{MARK}\x0c{MARK}\x1c{MARK}\x85{MARK}\u2028{MARK}\u2029{MARK}",
    "colours": "\x1b[31mred\x1b[0m\x1b[2J\x1b[H",
    "a title for the terminal": "\x1b]0;taken over\x07\x1b]8;;http://somewhere.invalid\x07x",
    "8-bit controls": "\x9b31m\x9d0;taken over\x9c",
    "backwards": "\u202eevil\u202c\u2066x\u2069\u200f\u061c",
    "nothing to see": "a\x00b\x08\x7f\ufeff\u200b",
    "no text": "\udcff\ud800",
    "a label's end": f'x"}} 1\n{MARK}_total{{a="\\',
    "formats": "%s %(password)s {0} {x!r} %n $HOME `id` $(id)",
    "markup": "[red]x[/red] [link=http://somewhere.invalid]y[/link] :boom: \\[",
    "a page": "<img src=x onerror=window.hit=1></script><script>window.hit=2</script>",
    "a script": "]] .. redis" + ".call('FLUSHALL') --[[ ' \" \\",
    "protocol": "$1\r\nx\r\n*1\r\n$8\r\nFLUSHALL\r\n",
    "long": "W" * 200,
}


def strange(text: str) -> list[str]:
    """What in a text is neither printable nor the end of a line; and lines that were forged."""
    lines = text.split("\n")
    return [line for line in lines if not line.isprintable() or line.lstrip().startswith(MARK)]


def raw(text: str) -> bytes:
    """As another program may write it: what is no text as the bytes that it once was."""
    return text.encode("utf-8", "surrogatepass")
