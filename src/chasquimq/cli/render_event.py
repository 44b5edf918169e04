"""A row of the events stream as a line. Pure.

    <ISO-8601 ms Z> <stream id> <event> id=<id|-> name=<name|-> k=v...

Extras are sorted by their names, long values are cut.
"""

from __future__ import annotations

from chasquimq.cli.render import iso
from chasquimq.cli.sheet import Cell, Line, Tone
from chasquimq.subscribe import QueueEvent
from chasquimq.text import shown

VALUE_CHARS = 80
_TONES: dict[str, Tone] = {
    "completed": "good",
    "failed": "warn",
    "retry-scheduled": "warn",
    "stalled": "warn",
    "dlq": "bad",
    "active": "strong",
    "drained": "dim",
}


def event_line(event: QueueEvent) -> Line:
    return (
        Cell(iso(happened_ms(event)), "dim"),
        Cell(event.id, "dim"),
        Cell(shown(event.name), _TONES.get(event.name, "")),
        Cell(f"id={shown(event.job_id or '-')}"),
        Cell(f"name={shown(event.job_name or '-')}"),
        *(Cell(f"{shown(key)}={_cut(value)}", "dim") for key, value in sorted(_extras(event))),
    )


def event_document(event: QueueEvent) -> dict[str, object]:
    """The same for programs: nothing is cut, nothing escaped."""
    return {
        "id": event.id,
        "at": iso(happened_ms(event)),
        "event": event.name,
        "job_id": event.job_id,
        "name": event.job_name,
        "fields": event.fields,
    }


def happened_ms(event: QueueEvent) -> int:
    """When it happened, as it says itself; else when Redis got it."""
    told = event.fields.get("ts")
    return told if isinstance(told, int) else int(event.id.partition("-")[0])


def _extras(event: QueueEvent) -> list[tuple[str, int | str]]:
    return [(key, value) for key, value in event.fields.items() if key != "ts"]


def _cut(value: int | str) -> str:
    text = str(value)
    return shown(text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}...")
