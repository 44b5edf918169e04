"""Dead jobs as sheets: a row each, one by one, or how many there are of which kind. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from chasquimq import wire
from chasquimq.cli.fit import fit
from chasquimq.cli.payload import json_job, show_job
from chasquimq.cli.render import ago, brief, iso, number
from chasquimq.cli.sheet import Cell, Column, Sheet, cell, sheet
from chasquimq.errors import WireError
from chasquimq.job import Reason
from chasquimq.text import shown

By = Literal["reason", "error", "name"]
Dead = Mapping[str, Any]  # as `peek_dlq` answers it

DETAIL_BYTES = 60
ERROR_CHARS = 80
SHORT_ERROR_CHARS = 40  # where each character makes the table longer
DATA_CHARS = 120  # of a payload in a table; the long form shows more

ROOMY = 160  # columns of a terminal that has room for long texts

# Which columns a narrow terminal does without, the first ones first. The rest is what says which
# job it was and why it died; data that was asked for beats the error.
GIVE_WAY = ("source_id", "payload bytes", "detail", "attempts", "error type", "age")


class Kind(msgspec.Struct, frozen=True, order=True):
    """Dead jobs that have something in common: how many, and the time they span."""

    value: str
    count: int
    oldest_ms: int
    newest_ms: int
    example: str | None = None  # an error of one of them


class Tally:
    """Counts dead jobs by what they have in common, a page at a time."""

    def __init__(self, by: By) -> None:
        self._by = by
        self._kinds: dict[str, Kind] = {}
        self.seen = 0

    def take(self, rows: Iterable[Dead]) -> None:
        for row in rows:
            self.seen += 1
            value, at = _value(row, self._by), died_ms(row)
            known = self._kinds.get(value) or Kind(value, 0, at, at)
            self._kinds[value] = Kind(
                value,
                known.count + 1,
                min(known.oldest_ms, at),
                max(known.newest_ms, at),
                row["error"] or known.example,
            )

    def kinds(self) -> list[Kind]:
        """The reasons by their name, as the reference sorts them; all others by how many."""
        if self._by == "reason":
            return sorted(self._kinds.values())
        return sorted(self._kinds.values(), key=lambda kind: (-kind.count, kind.value))


def entries(
    queue: str, rows: Sequence[Dead], now_ms: int, *, payload: int | None, width: int | None
) -> Sheet:
    """A row each: the columns of the reference, then ours. `payload`: so many characters of it."""
    head = f"dlq peek: {queue}"
    widest = ERROR_CHARS if width is None or width >= ROOMY else SHORT_ERROR_CHARS
    columns: list[Column | str] = [
        head if width is None else shown(head, max(22, width // 4)),
        "source_id",
        Column("name", wide=True),
        "reason",
        Column("detail", wide=True),
        number("payload bytes"),
        "error type",
        Column("error", wide=True),
        number("attempts"),
        number("age"),
    ]
    table = [
        [
            row["dlq_id"],
            row["source_id"],
            row["name"],
            reason_cell(row["reason"]),
            cut(row["detail"]),
            str(len(row["payload"])),
            row["error_type"],
            None if row["error"] is None else shown(row["error"], widest),
            row["attempt"],
            brief(max(0, now_ms - died_ms(row))),
        ]
        for row in rows
    ]
    notes = []
    if payload is not None:
        columns.append(Column("data", wide=True))
        for row, cells in zip(rows, table, strict=True):
            told = show_job(row["payload"], payload)
            cells.append(Cell(told.text, "warn" if told.trouble else ""))
            if told.cut:
                notes = [
                    "data is shown in part; --payload-limit 0 shows all, --full on several lines"
                ]
    give_way = GIVE_WAY if payload is None else (*GIVE_WAY, "error")
    hint = "--full shows all, one by one"
    return fit(sheet(columns, table, notes=notes, empty="(empty)"), width, give_way, hint)


def reasons(rows: Sequence[Dead], dead: int) -> Sheet:
    """The second table of the reference: how many died of what, among those that were read."""
    counts = Counter(row["reason"] for row in rows)
    note = f"of the {len(rows):,} above; the DLQ has {dead:,}: --by reason counts them all"
    if len(rows) == dead:
        note = "of the whole DLQ"
    return sheet(
        ("reason", number("count")),
        ((reason_cell(reason), count) for reason, count in sorted(counts.items())),
        notes=[note] if rows else [],
        empty="(no entries)",
    )


def full(queue: str, row: Dead, now_ms: int, *, payload: int) -> Sheet:
    """One dead job, a field per line, with its data."""
    told = show_job(row["payload"], payload, lines=True)
    died = died_ms(row)
    fields: list[tuple[object, object]] = [
        ("source_id", row["source_id"]),
        ("job_id", job_id(row)),
        ("name", row["name"]),
        ("reason", _reason_with_code(row["reason"])),
        ("detail", row["detail"]),
        ("error type", row["error_type"]),
        ("error", row["error"]),
        ("attempts", row["attempt"]),
        ("died", f"{iso(died)}, {ago(max(0, now_ms - died))} ago"),
        ("payload bytes", f"{len(row['payload']):,}"),
    ]
    lines = told.text.split("\n")
    fields += [("data" if not place else Cell(""), Cell(line)) for place, line in enumerate(lines)]
    notes = [note for note in (told.trouble, told.note()) if note]
    head = Column(shown(row["dlq_id"]), wide=True)
    return sheet((shown(f"dlq peek: {queue}", 30), head), fields, notes=notes)


def kinds(found: Sequence[Kind], by: By, now_ms: int, seen: int, dead: int) -> Sheet:
    """How many dead jobs there are of each kind, in the whole DLQ."""
    columns: list[Column | str] = [
        Column("error type" if by == "error" else by, wide=by == "name"),
        number("count"),
        number("oldest"),
        number("newest"),
    ]
    table: list[list[object]] = [
        [
            reason_cell(one.value) if by == "reason" else one.value,
            one.count,
            brief(max(0, now_ms - one.oldest_ms)),
            brief(max(0, now_ms - one.newest_ms)),
        ]
        for one in found
    ]
    if by == "error":
        columns.append(Column("the last one's error", wide=True))
        for one, cells in zip(found, table, strict=True):
            cells.append(None if one.example is None else shown(one.example, ERROR_CHARS))
    whole = "the whole DLQ" if seen == dead else f"{seen:,} of the DLQ's {dead:,} entries"
    return sheet(columns, table, notes=[f"counted: {whole}"] if seen else [], empty="(no entries)")


def entry_json(row: Dead, *, payload: bool) -> dict[str, Any]:
    """A dead job for programs; its bytes and its data only where they were asked for."""
    told = {name: value for name, value in row.items() if name != "payload"}
    told |= {"job_id": job_id(row), "payload_bytes": len(row["payload"])}
    return told | {"payload": row["payload"]} | json_job(row["payload"]) if payload else told


def job_id(row: Dead) -> str | None:
    """Rows of the reference have it in the envelope only."""
    try:
        return row["job_id"] or wire.unpack_envelope(row["payload"]).id
    except WireError:
        return None


def died_ms(row: Dead) -> int:
    """When it was buried; a row that does not say so came into the DLQ when its id says."""
    at: int | None = row["failed_at_ms"]
    return int(row["dlq_id"].partition("-")[0]) if at is None else at


def cut(text: str | None, most: int = DETAIL_BYTES) -> str | None:
    """At most so many bytes of UTF-8 and a sign that there is more; never half a character."""
    if text is None:
        return None
    raw = text.encode(errors="backslashreplace")
    return text if len(raw) <= most else raw[:most].decode(errors="ignore") + "…"


def reason_cell(reason: str) -> Cell:
    return cell(reason, "bad" if reason == Reason.RETRIES_EXHAUSTED else "warn")


def _reason_with_code(reason: str) -> str:
    try:
        return f"{reason} ({Reason(reason).code})"
    except ValueError:
        return reason


def _value(row: Dead, by: By) -> str:
    return str(row["error_type" if by == "error" else by] or "")
