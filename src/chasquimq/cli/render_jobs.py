"""What `chasqui jobs` shows, as sheets. Pure: values in, sheets out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from chasquimq.cli.payload import json_job, json_payload, show_job, show_payload
from chasquimq.cli.render import ago, number, size
from chasquimq.cli.sheet import Cell, Column, Sheet, Tone, cell, sheet
from chasquimq.job import RetryOverride
from chasquimq.store.find import Looked, Origin, Sought, Stored
from chasquimq.store.listing import Listed
from chasquimq.store.sighting import Sighting
from chasquimq.text import shown

TONES: dict[str, Tone] = {"running": "good", "delayed": "warn", "dead": "bad"}
_FACTS = (Column("what"), Column("value", wide=True))


def moment(ms: int | None) -> str | None:
    """An epoch ms as people and programs read it; one beyond the calendar as it is."""
    if ms is None:
        return None
    try:
        when = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return f"{ms} ms"
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(ms: int | None, now_ms: int) -> str | None:
    """A moment, and how far away it is."""
    if ms is None:
        return None
    apart = now_ms - ms
    return f"{moment(ms)} ({ago(apart)} ago)" if apart >= 0 else f"{moment(ms)} (in {ago(-apart)})"


# -- one job ---------------------------------------------------------------------------------------


def sought(found: Sought, most: int) -> list[Sheet]:
    """`chasqui jobs show`: a sheet for each place, then all that else is known. `most`:
    characters of its data, 0 for all."""
    sheets = [_place(one, found, most) for one in found.sightings]
    if not sheets:
        known = [("where", Cell("in no place: it is done, was cancelled or removed", "warn"))]
        sheets.append(sheet(_FACTS, known, title=_title(found)))
    if found.result is not None:
        sheets.append(_result(found.result, most))
    if found.markers:
        sheets.append(
            sheet(
                ("marker", Column("says", wide=True), number("lives for")),
                ((one.kind, one.value, ago(one.ttl_ms)) for one in found.markers),
                title="markers that hold the id",
            )
        )
    if found.origin is not None:
        sheets.append(_origin(found.origin, found.now_ms))
    if found.events:
        sheets.append(_events(found))
    last = sheets.pop()
    return [*sheets, last._replace(notes=(*last.notes, *looked(found.looked)))]


def looked(places: Sequence[Looked]) -> list[str]:
    """Where was looked less than everywhere."""
    return [
        f"looked at {one.rows:,} of {one.total:,} rows of the {one.place}; --scan goes further"
        for one in places
        if not one.whole
    ]


def not_found(job_id: str, places: Sequence[Looked]) -> str:
    where = looked_everywhere(places)
    if all(one.whole for one in places):
        return (
            f"knows no job {job_id!r}; looked at: {where}. A job that is done leaves nothing "
            "behind unless its result or its events are kept"
        )
    most = max(one.total for one in places)
    return (
        f"knows no job {job_id!r} as far as was looked: {where}. It may be in the rest: "
        f"--scan {most} looks at everything"
    )


def looked_everywhere(places: Sequence[Looked]) -> str:
    return ", ".join(
        f"{one.place} ({'all ' if one.whole else ''}{one.rows:,}"
        f"{'' if one.whole else f' of {one.total:,}'})"
        for one in places
    )


def _title(found: Sought) -> str:
    asked = "" if found.asked == found.job_id else f" (entry {found.asked})"
    return f"job {found.job_id}{asked} of queue {found.queue}"


def _place(one: Sighting, found: Sought, most: int) -> Sheet:
    now_ms = found.now_ms
    data = show_job(one.envelope, most)
    rows: list[tuple[str, object]] = [
        ("where", _where(one)),
        *_since(one, now_ms),
        ("began", when(_began(found), now_ms) if one.state == "running" else None),
        ("name", one.name),
        ("created", when(one.created_ms, now_ms)),
        ("failed runs" if one.state != "dead" else "runs", one.attempt),
        ("own rules", rules(one.retry)),
        ("unique until done", one.unique_s and f"at most {ago(one.unique_s * 1000)}"),
        ("error", one.error and Cell(_error(one), "bad")),
        ("detail", one.detail),
        ("entry", one.entry_id),
        ("came from entry", one.source_id),
        ("trouble", one.trouble and Cell(one.trouble, "bad")),
        ("data", f"{data.text} ({size(data.size)})" if one.envelope else None),
    ]
    always = {"where", "name", "created", "data"}
    kept = [row for row in rows if row[0] in always or row[1] not in (None, "", 0)]
    notes = []
    if data.cut:
        notes.append(f"data shown in part, of {data.size:,} bytes; --full shows all")
    if data.trouble and one.envelope:
        notes.append(f"the data cannot be read ({data.trouble}): these are their bytes")
    return sheet(_FACTS, kept, title=_title(found), notes=notes)


def _where(one: Sighting) -> Cell:
    tone = TONES.get(one.state, "")
    if one.state == "running":
        times = "" if one.deliveries == 1 else f", delivery {one.deliveries}"
        return cell(f"running: {one.consumer} has it{times}", tone)
    if one.state == "delayed":
        why = "" if one.indexed else ", for another run"
        return cell(f"delayed{why}", tone)
    return cell(f"dead: {one.reason}" if one.reason else one.state, tone)


def _since(one: Sighting, now_ms: int) -> Iterable[tuple[str, object]]:
    if one.state == "delayed":
        yield "due", when(one.due_ms, now_ms)
        return
    yield ("in the stream since" if one.state != "dead" else "died"), when(one.since_ms, now_ms)
    if one.state == "running":
        yield "last sign of life", f"{ago(one.idle_ms)} ago"


def _began(found: Sought) -> int | None:
    """When its run began: only its event tells, if there are events."""
    for _, row in reversed(found.events):
        ts = row.fields.get("ts")
        if row.name == "active" and isinstance(ts, int):
            return ts
    return None


def _error(one: Sighting) -> str:
    return cell(f"{one.error_type}: {one.error}" if one.error_type else one.error).text


def rules(retry: RetryOverride | None) -> str | None:
    if retry is None:
        return None
    told = [] if retry.max_attempts is None else [f"{retry.max_attempts} attempts"]
    if retry.backoff is not None:
        told += [f"{name} {value}" for name, value in retry.backoff.to_dict().items()]
    return ", ".join(told) or None


def _result(one: Stored, most: int) -> Sheet:
    rows: list[tuple[str, object]] = [("size", size(one.size)), ("lives for", ago(one.ttl_ms))]
    notes = []
    if one.payload is None:
        rows.append(("value", Cell(f"not fetched: {size(one.size)}; --full shows it", "dim")))
    else:
        data = show_payload(one.payload, most)
        rows.append(("value", data.text))
        notes = [f"result shown in part, of {data.size:,} bytes; --full shows all"] * data.cut
    return sheet(_FACTS, rows, title="result", notes=notes)


def _origin(one: Origin, now_ms: int) -> Sheet:
    rows: list[tuple[str, object]] = [
        ("key", one.key),
        ("window", "none: made by hand" if one.window_ms is None else moment(one.window_ms)),
    ]
    if not one.exists:
        return sheet(_FACTS, [*rows, ("spec", "it is gone")], title="made from a spec")
    pattern = one.pattern or {}
    rows += [
        ("name", one.job_name),
        ("pattern", " ".join(str(value) for name, value in pattern.items() if name != "kind")),
        ("next fire", "paused" if one.paused else when(one.next_fire_ms, now_ms)),
        ("fired", one.fired),
    ]
    rows += [("problem", Cell(cell(one.problem).text, "bad"))] if one.problem else []
    return sheet(_FACTS, rows, title="made from a spec")


def _events(found: Sought) -> Sheet:
    rows = []
    for _, row in found.events:
        extras = {name: value for name, value in row.fields.items() if name != "ts"}
        told = " ".join(f"{name}={value}" for name, value in extras.items())
        ts = row.fields.get("ts")
        rows.append((moment(ts) if isinstance(ts, int) else ts, row.name, cell(told or None)))
    return sheet(("at", "event", Column("told", wide=True)), rows, title="events")


def sought_json(found: Sought) -> dict[str, Any]:
    """The same for programs."""
    result = found.result
    return {
        "queue": found.queue,
        "group": found.group,
        "asked": found.asked,
        "job_id": found.job_id,
        "found": found.found,
        "now_ms": found.now_ms,
        "places": [job_json(one) for one in found.sightings],
        "result": result
        and {"size": result.size, "ttl_ms": result.ttl_ms, **json_payload(result.payload or b"")},
        "markers": [
            {"kind": one.kind, "value": one.value, "ttl_ms": one.ttl_ms} for one in found.markers
        ],
        "spec": found.origin and _origin_json(found.origin),
        "events": [{"id": at, "event": row.name, **row.fields} for at, row in found.events],
        "looked": [dict(one._asdict()) for one in found.looked],
    }


def job_json(one: Sighting) -> dict[str, Any]:
    return one.to_dict() | json_job(one.envelope)


def _origin_json(one: Origin) -> dict[str, Any]:
    names = one.__struct_fields__
    return {name: getattr(one, name) for name in names if getattr(one, name) is not None}


# -- lists -----------------------------------------------------------------------------------------


def jobs(listed: Sequence[tuple[str, Listed]], now_ms: int) -> Sheet:
    """`chasqui jobs list`: a row per job."""
    notes = [
        f"there are more {state} jobs: --limit shows more of them"
        if len(page.jobs)
        else f"looked at {page.rows:,} {state} jobs; --scan goes further"
        for state, page in listed
        if page.more
    ]
    return sheet(
        (
            "state",
            "id",
            "name",
            number("age"),
            number("runs"),
            Column("consumer, due time or reason", wide=True),
        ),
        (_row(one, now_ms) for _, page in listed for one in page.jobs),
        notes=notes,
        empty="(no jobs)",
    )


def _row(one: Sighting, now_ms: int) -> tuple[object, ...]:
    age = None if one.created_ms is None else max(0, now_ms - one.created_ms)
    state = Cell(one.state, TONES.get(one.state, ""))
    name_or_id = one.job_id or f"({one.entry_id or 'unreadable'})"
    return state, name_or_id, one.name, ago(age), _runs(one), _what(one, now_ms)


def _runs(one: Sighting) -> int | None:
    """How often it has been begun: a run that is on counts, as does one that crashed."""
    if one.state == "running" and one.attempt is not None:
        return one.attempt + (one.deliveries or 1)
    return one.attempt


def _what(one: Sighting, now_ms: int) -> object:
    if one.trouble:
        return Cell(cell(one.trouble).text, "bad")
    if one.state == "running":
        return f"{one.consumer}, last sign of life {ago(one.idle_ms)} ago"
    if one.state == "delayed":
        return when(one.due_ms, now_ms)
    if one.state == "dead":
        return f"{one.reason}: {_error(one)}" if one.error else one.reason
    return None


# -- changes ---------------------------------------------------------------------------------------


def why_not(seen: Sequence[Sighting], places: Sequence[Looked]) -> str:
    """Why a job could not be taken out of the delayed set."""
    for one in seen:
        if one.state == "running":
            return f"it runs: {shown(one.consumer or '')} has it"
        if one.state == "waiting":
            return "it waits in the stream: its time has come"
        if one.state == "delayed":
            return "it waits for another run: retries cannot be changed"
        return f"it is dead ({shown(one.reason or '')}): see chasqui dlq"
    found = "it is unknown" if all(one.whole for one in places) else "it was not found"
    return f"{found}; looked at: {looked_everywhere(places)}"
