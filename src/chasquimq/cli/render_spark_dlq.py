"""What `chasqui spark triage`, `replay` and `purge` show. Pure: values in, sheets and words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chasquimq.cli.fit import fit
from chasquimq.cli.render import ago, brief, iso, number
from chasquimq.cli.render_dlq import reason_cell
from chasquimq.cli.sheet import Column, Sheet, cell, sheet
from chasquimq.text import shown

Cluster = Mapping[str, Any]  # as chasquimq.spark.pipelines.cluster has it

# The first ones go first where a terminal is narrow; what is left names a cluster and its error.
GIVE_WAY = ("example", "first seen", "names", "share", "queue", "reason", "last seen")
MESSAGE_CHARS = 120
STAY = {
    "gone": "no longer in the DLQ",
    "unreadable": "no job can be read in them, they stay",
    "taken": "living jobs have their unique ids, they stay",
}


def clusters(
    queues: Sequence[str],
    found: Sequence[Cluster],
    limit: int,
    dead: Mapping[str, int],
    now_ms: int,
    width: int | None,
) -> Sheet:
    total = sum(one["jobs"] for one in found)
    columns: list[Column | str] = [
        "cluster",
        Column("queue", wide=True),
        number("jobs"),
        number("share"),
        "reason",
        Column("error type", wide=True),
        Column("message", wide=True),
        Column("names", wide=True),
        number("first seen"),
        number("last seen"),
        "example",
    ]
    lines = [
        [
            cell(one["cluster"], "strong"),
            one["queue"],
            one["jobs"],
            share(one["jobs"], total),
            reason_cell(one["reason"] or ""),
            one["error_type"],
            shown(one["message"], MESSAGE_CHARS),
            names(one),
            _age(one["first_seen_ms"], now_ms),
            _age(one["last_seen_ms"], now_ms),
            one["example_id"],
        ]
        for one in found[:limit]
    ]
    if len(queues) == 1:
        del columns[1]
        for line in lines:
            del line[1]
    table = sheet(
        columns,
        lines,
        title=f"{', '.join(queues)}: what dead jobs died of",
        notes=_notes(found, limit, total, sum(dead.values())),
        empty="(none is meant)" if any(dead.values()) else "(the DLQ is empty)",
    )
    return fit(table, width, GIVE_WAY, "--full shows all, one by one")


def _notes(found: Sequence[Cluster], limit: int, total: int, dead: int) -> list[str]:
    if not found:
        return []
    what = f"{_jobs(total)} in {_clusters(len(found))}"
    notes = [what if total == dead else f"{what}; in all {_jobs(dead)}"]
    if len(found) > limit:
        rest = sum(one["jobs"] for one in found[limit:])
        notes.append(f"not shown: {_clusters(len(found) - limit)}, {_jobs(rest)}; give --limit")
    return notes


def full(one: Cluster, now_ms: int) -> Sheet:
    """One cluster, a field per line."""
    fields: list[tuple[object, object]] = [
        ("queue", one["queue"]),
        ("jobs", one["jobs"]),
        ("reason", reason_cell(one["reason"] or "")),
        ("error type", one["error_type"]),
        ("message", one["message"]),
        ("names", names(one)),
        ("first seen", _moment(one["first_seen_ms"], now_ms)),
        ("last seen", _moment(one["last_seen_ms"], now_ms)),
        ("example", one["example_id"]),
        ("its job id", one["example_job"]),
        ("its error", one["example_error"]),
        ("its data", one["example_payload"]),
    ]
    return sheet((Column("cluster"), Column(one["cluster"], wide=True)), fields)


def names(one: Cluster) -> str | None:
    """mail, sms and 3 more."""
    known = [name or "(no name)" for name in one["names"]]
    more = one["distinct_names"] - len(known)
    return ", ".join(known) + (f" and {more:,} more" if more > 0 else "")


def share(part: int, whole: int) -> str:
    percent = 100 * part / whole if whole else 0
    return "<1%" if 0 < percent < 1 else f"{percent:.0f}%"


def question(verb: str, count: int, queue: str) -> str:
    if verb == "replay":
        return f"replay {_jobs(count)} into queue '{queue}'"
    return f"delete {_jobs(count)} of queue '{queue}' for good"


def ended(
    verb: str,
    queue: str,
    chosen: int,
    totals: Mapping[str, int],
    left: Mapping[str, int],
    dry_run: bool,
) -> list[str]:
    """What became of how many, as tasks told and as Redis has it."""
    if not chosen:
        why = "its DLQ is empty" if not left["dead"] else "no dead job is meant"
        return [shown(f"{queue}: nothing to {verb}, {why}")]
    done = _done(verb, totals, dry_run)
    word = f"would {verb}" if dry_run else _DONE[verb]
    lines = [f"{word} {done:,} of {_jobs(chosen)}"]
    lines += [
        f"{count:,} {name}: {why}" for name, why in STAY.items() if (count := totals.get(name))
    ]
    if not dry_run and totals.get("noted", done) != done:
        lines.append(f"Redis has noted {totals['noted']:,}: did the server change meanwhile?")
    lines.append(f"{queue} has {left['dead']:,} dead and {left['in_queue']:,} in its stream now")
    return [shown(line) for line in lines]


def ended_json(
    verb: str,
    queue: str,
    chosen: int,
    totals: Mapping[str, int],
    left: Mapping[str, int],
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "queue": queue,
        "chosen": chosen,
        _DONE[verb]: _done(verb, totals, dry_run),
        **{name: totals.get(name, 0) for name in STAY},
        "noted": totals.get("noted", 0),
        **left,
        "dry_run": dry_run,
    }


_DONE = {"replay": "replayed", "purge": "purged"}


def _done(verb: str, totals: Mapping[str, int], dry_run: bool) -> int:
    return totals.get(f"would {verb}" if dry_run else _DONE[verb], 0)


def _age(at_ms: int | None, now_ms: int) -> str | None:
    return None if at_ms is None else brief(max(0, now_ms - at_ms))


def _moment(at_ms: int | None, now_ms: int) -> str | None:
    return None if at_ms is None else f"{iso(at_ms)}, {ago(max(0, now_ms - at_ms))} ago"


def _jobs(count: int) -> str:
    return f"{count:,} dead job{'' if count == 1 else 's'}"


def _clusters(count: int) -> str:
    return f"{count:,} cluster{'' if count == 1 else 's'}"
