"""A page of help, laid out for the width of a terminal. Pure.

Typer and rich make the same page, and take ten times as long to load as all of this to run. What
is on a page stands in `pages.txt`, which `tools/help_pages.py` writes from the commands; how it is
laid out stands here, and `tests/cli/test_page.py` compares it with theirs, character by character.

A line of `pages.txt` is a kind and its cells, a tab between them:

    =         the command whose page begins, without `chasqui`
    usage     one line
    about     a paragraph, or nothing: an empty line
    options   the title of a panel
    option    a row: how many cells names and type take, these, the help, and what follows it
    commands  the title of a panel, and how wide its names are
    command   a row: name and help
    example   a line at the end

`⟦1;36|--json⟧` is `--json` in the colours 1 and 36 of a terminal.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would take as long as the page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Line = tuple[str, list[str]]  # kind and cells

NARROWEST = 60  # below that, rich squeezes in ways that are not worth having here
DIM = "2"


def find_page(pages: str, path: str) -> list[Line] | None:
    """The lines of a command's page, `path` being what follows `chasqui`."""
    _, found, rest = pages.partition(f"\n=\t{path}\n")
    if not found:
        return None
    lines = rest.partition("\n=\t")[0].rstrip("\n").split("\n")
    return [
        (kind, cells.split("\t")) for kind, _, cells in (line.partition("\t") for line in lines)
    ]


def lay_out(page: Sequence[Line], width: int, colour: bool) -> str:
    sheet = _Sheet(width, colour)
    place = 0
    while place < len(page):
        kind, cells = page[place]
        after = place + 1
        while after < len(page) and page[after][0] == _INNER.get(kind, kind):
            after += 1
        rows = [inner for _, inner in page[place + 1 : after]]
        if kind == "options":
            sheet.panel(cells[0], sheet.options(rows))
        elif kind == "commands":
            sheet.panel(cells[0], sheet.commands(rows, int(cells[1])))
        else:
            sheet.text([cells[0], *(row[0] for row in rows)], above=kind != "about")
        place = after
    return "".join(f"{line}\n" for line in (*sheet.lines, ""))


_INNER = {"options": "option", "commands": "command"}


class _Text:
    """Words and where they are coloured."""

    def __init__(self, written: str) -> None:
        first, *coloured = written.split("⟦")
        self.plain = first
        self.spans: list[tuple[int, int, str]] = []
        for one in coloured:
            inside, _, after = one.partition("⟧")
            codes, _, words = inside.partition("|")
            start = len(self.plain)
            self.plain += words + after
            self.spans.append((start, start + len(words), codes))

    def wrapped(self, width: int, fold: bool) -> Iterator[tuple[int, int, bool]]:
        """Where each line begins and ends, and whether its last character stands for more."""
        starts = [0, *_breaks(self.plain, width, fold)]
        for start, end in zip(starts, [*starts[1:], len(self.plain)], strict=True):
            shown = start + len(self.plain[start:end].rstrip(" "))
            yield start, min(max(shown, start), start + width), shown - start > width


class _Sheet:
    """Lines of a width, as they come."""

    def __init__(self, width: int, colour: bool) -> None:
        self.lines: list[str] = []
        self._width = width
        self._colour = colour

    def text(self, paragraphs: Iterable[str], above: bool) -> None:
        blank = " " * self._width
        inner = [
            f" {line} "
            for one in paragraphs
            for line in self._cell(one, self._width - 2, fold=True)
        ]
        self.lines += [blank, *inner, blank] if above else [*inner, blank]

    def panel(self, title: str, rows: Iterable[str]) -> None:
        side = self._painted("│", DIM)
        rule = "─" * (self._width - len(title) - 5)
        self.lines.append(self._painted(f"╭─ {title} {rule}╮", DIM))
        self.lines += [f"{side} {row} {side}" for row in rows]
        self.lines.append(self._painted(f"╰{'─' * (self._width - 2)}╯", DIM))

    def commands(self, rows: Iterable[Sequence[str]], names: int) -> Iterator[str]:
        room = self._width - 4 - names - 2
        for name, about in rows:
            yield from self._row([self._cell(name, names), self._cell(about, room)], [names, room])

    def options(self, rows: Sequence[Sequence[str]]) -> Iterator[str]:
        """Names and types as wide as they are, if that leaves as much for the help."""
        count = int(rows[0][0])
        cells = [[_Text(cell) for cell in row[1 : count + 1]] for row in rows]
        widths = _shared(
            [max(len(row[place].plain) for row in cells) for place in range(count)],
            self._width - 4,
        )
        for row, (_, *written) in zip(cells, rows, strict=True):
            folded = [place == count - 1 for place in range(count)]
            names = [
                self._shown(cell, width, fold)
                for cell, width, fold in zip(row, widths, folded, strict=False)
            ]
            yield from self._row([*names, self._notes(written[count:], widths[-1])], widths)

    def _notes(self, written: Sequence[str], width: int) -> list[str]:
        """The help and what follows it: in one line if they fit, below each other if not."""
        length = sum(len(_Text(one).plain) for one in written) + len(written) - 1
        if length > width:
            return [line for one in written for line in self._cell(one, width)]
        shown = " ".join(self._cell(one, len(_Text(one).plain))[0] for one in written)
        return [shown + " " * (width - max(length, 0))]

    def _row(self, cells: Sequence[list[str]], widths: Sequence[int]) -> Iterator[str]:
        """Cells side by side, two spaces apart, those that are shorter filled up."""
        for place in range(max(map(len, cells))):
            yield "  ".join(
                cell[place] if place < len(cell) else " " * width
                for cell, width in zip(cells, widths, strict=True)
            )

    def _cell(self, written: str, width: int, fold: bool = False) -> list[str]:
        return self._shown(_Text(written), width, fold)

    def _shown(self, text: _Text, width: int, fold: bool) -> list[str]:
        return [
            self._slice(text, start, end, more) + " " * (width - (end - start))
            for start, end, more in text.wrapped(width, fold)
        ]

    def _slice(self, text: _Text, start: int, end: int, more: bool) -> str:
        plain = f"{text.plain[: end - 1]}…" if more else text.plain
        parts = []
        for first, last, codes in text.spans:
            begin, stop = max(first, start), min(last, end)
            if begin < stop:
                parts += [plain[start:begin], self._painted(plain[begin:stop], codes)]
                start = stop
        return "".join((*parts, plain[start:end]))

    def _painted(self, words: str, codes: str) -> str:
        return f"\x1b[{codes}m{words}\x1b[0m" if self._colour and words else words


def _shared(wanted: list[int], room: int) -> list[int]:
    """How wide columns are, the last one for all that is left.

    It begins with all the room. What is too much is taken from the widest until it is as wide as
    the next one, then from both, and so on.
    """
    widths = [1 + wanted[0], *(2 + one for one in wanted[1:]), room]
    while (excess := sum(widths) - room) > 0:
        widest = max(widths)
        next_one = max((one for one in widths if one != widest), default=0)
        level = [place for place, one in enumerate(widths) if one == widest]
        for done, place in enumerate(level):
            taken = min(widest - next_one, round(excess / (len(level) - done)))
            widths[place] -= taken
            excess -= taken
    return [widths[0] - 1, *(one - 2 for one in widths[1:-1]), widths[-1] - 1]


def _breaks(plain: str, width: int, fold: bool) -> Iterator[int]:
    """Where lines begin after the first. A word longer than a line is folded, or left to be cut."""
    used = 0
    for start, end in _words(plain):
        size = len(plain[start:end].rstrip(" "))
        if size <= width - used:
            used += end - start
        elif size > width and fold:
            yield from (place for place in range(start, end, width) if place)
            used = (end - start - 1) % width + 1
        else:
            if start:
                yield start
            used = end - start


def _words(plain: str) -> Iterator[tuple[int, int]]:
    """Where each word begins, and where the blanks behind it end."""
    start = 0
    while start < len(plain):
        end = start + len(plain[start:]) - len(plain[start:].lstrip(" "))
        end = plain.find(" ", end) if " " in plain[end:] else len(plain)
        while end < len(plain) and plain[end] == " ":
            end += 1
        yield start, end
        start = end
