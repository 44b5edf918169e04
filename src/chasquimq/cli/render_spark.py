"""What `chasqui spark recover` shows. Pure: values in, sheets and words out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from chasquimq.cli.fit import fit
from chasquimq.cli.render import brief, number
from chasquimq.cli.sheet import Cell, Column, Sheet, cell, sheet
from chasquimq.text import shown

Unfinished = Mapping[str, Any]  # as chasquimq.spark.write.recover tells of a run

GIVE_WAY = ("mode", "expires in", "age", "idle")
REMEDIES = {
    "complete": Cell("--complete", "warn"),
    "abort": Cell("it is still running, or --abort", "dim"),
    "rerun": Cell("it is still running, or run it again", "dim"),
}


def unfinished(queue: str, found: Sequence[Unfinished], width: int | None) -> Sheet:
    columns: list[Column | str] = [
        Column("run", wide=True),
        "state",
        "mode",
        number("rows in"),
        number("staged"),
        number("age"),
        number("idle"),
        number("expires in"),
        Column("what to do", wide=True),
    ]
    lines = [
        [
            one["run"],
            cell(one["state"], "warn" if one["state"] == "moving" else ""),
            one["mode"],
            one["rows"],
            one["staged"] if one["mode"] == "staged" else None,
            brief(one["age_ms"]),
            brief(one["idle_ms"]),
            brief(one["expires_ms"]),
            remedy(one),
        ]
        for one in found
    ]
    table = sheet(
        columns,
        lines,
        title=f"{queue}: runs of the Spark sink that are not finished",
        empty="(all runs are finished)",
    )
    return fit(table, width, GIVE_WAY)


def remedy(one: Unfinished) -> Cell:
    if one["remedy"] == "give up":
        return cell(f"{rows(one['missing'])} gone: --give-up", "bad")
    return REMEDIES[one["remedy"]]


def rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


def plan(steps: Sequence[tuple[str, Any]]) -> str:
    """The question: complete 2 runs (1,200 rows) and abort 1 run (7 rows)."""
    told = []
    for verb in dict.fromkeys(verb for verb, _ in steps):
        about = [one for each, one in steps if each == verb]
        count = f"{len(about):,} run{'' if len(about) == 1 else 's'}"
        told.append(f"{verb} {count} ({rows(sum(one.staged for one in about))})")
    return " and ".join(told)


def ended(one: Mapping[str, Any], dry_run: bool) -> str:
    """What became of a run, or would."""
    run, count = one["run"], rows(one["rows"])
    if dry_run:
        return shown(f"would {one['verb']} run {run}: {count}")
    if one["verb"] == "complete":
        return shown(f"completed run {run}: {count} in the queue")
    done = "aborted" if one["verb"] == "abort" else "gave up"
    return shown(f"{done} run {run}: {count} deleted")


def nothing(queue: str, verbs: Collection[str]) -> str:
    return shown(f"{queue}: nothing to {' or '.join(sorted(verbs))}")


def cannot(one: Unfinished, verbs: Collection[str]) -> str:
    """Why a run that was named is not helped."""
    wanted = " or ".join(sorted(verbs))
    if one["state"] == "moving":
        return f"run {one['run']} has a manifest, so not {wanted}: --complete brings its rows in"
    if one["mode"] != "staged":
        return f"run {one['run']} writes without a stage, so not {wanted}: run it again"
    return f"run {one['run']} has no manifest, so not {wanted}: it still runs, or --abort it"


def left_alone(count: int, idle_ms: int) -> str:
    who = "1 run" if count == 1 else f"{count:,} runs"
    return f"{who} staged rows within {brief(idle_ms)}, left alone; name it, or give --idle"
