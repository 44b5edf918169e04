"""What `chasqui add` says of the jobs it added, or did not. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chasquimq.cli.load import Doubt, Tally
from chasquimq.text import shown

SHOWN_RANGES = 10


def added(tally: Tally, dry_run: bool = False) -> str:
    jobs = f"{tally.added:,} job{'' if tally.added == 1 else 's'}"
    again = f"; {tally.duplicates:,} were there already" if tally.duplicates else ""
    return f"would add {jobs}" if dry_run else f"added {jobs}{again}"


def sums(tally: Tally, dry_run: bool = False) -> dict[str, Any]:
    """The same for programs."""
    told: dict[str, Any] = {"would_add" if dry_run else "added": tally.added}
    if not dry_run:
        told |= {
            "duplicates": tally.duplicates,
            "unconfirmed": [one._asdict() for one in tally.doubts],
            "less_safe": [one._asdict() for one in tally.unsafe],
            "not_added": tally.missing,
        }
        if tally.job_id is not None and tally.added + tally.duplicates == 1:
            told["job_id"] = tally.job_id
    refused = [] if tally.refused is None else [tally.refused]
    bad = [{"number": one.number, "why": one.why} for one in (*tally.bad, *refused)]
    return told | {
        "bad": tally.bad_count + len(refused),
        "first_bad": bad,
        "next": tally.ahead,
    }


def skipped(tally: Tally, unit: str) -> list[str]:
    """What was left out, the first of it."""
    if not tally.bad_count:
        return []
    lines = [f"{unit} {one.number:,}: {shown(one.why, 300)}" for one in tally.bad]
    more = tally.bad_count - len(lines)
    return lines + ([f"... and {more:,} more bad {unit}s"] if more else [])


def account(tally: Tally, queue: str, unit: str, *, many: bool) -> list[str]:
    """What is to be said when the work ended early: what is in, what is not, how to go on."""
    if not many:
        doubt = ["it may be in, or not: the answer was lost"] if tally.doubts else []
        return doubt or ([] if tally.added else ["nothing was added"])
    none = not (tally.added or tally.duplicates or tally.unsafe or tally.doubts)
    notes = ["nothing was added"] if none else [f"{added(tally)} before that"]
    if tally.unsafe:
        notes.append(f"{_places(tally.unsafe, unit)} are in, but not as safely as asked for")
    if tally.doubts:
        notes.append(
            f"{_places(tally.doubts, unit)}: nobody knows whether they are in, the answers were "
            f"lost; --json has ids to look for with chasqui jobs show {shown(queue)} ID"
        )
    if tally.missing:
        notes.append(f"{_numbers(tally.missing, unit)}: not in, though some behind them are")
    go_on = f"go on with --from-line {tally.ahead}"
    if tally.refused is None:
        return notes if none else [*notes, go_on]
    if tally.refused.last:
        return [*notes, f"nothing behind it can be read; repair it, then {go_on}"]
    return [*notes, f"repair it, then {go_on}; or leave such {unit}s out with --skip-bad"]


def _places(doubts: Sequence[Doubt], unit: str) -> str:
    count = f"{len(doubts):,} job{'' if len(doubts) == 1 else 's'}"
    return f"{_numbers([one.number for one in doubts], unit)} ({count})"


def _numbers(numbers: Sequence[int], unit: str) -> str:
    runs = ranges(numbers)
    told = [f"{first:,}" if first == last else f"{first:,} to {last:,}" for first, last in runs]
    more = f" and {len(runs) - SHOWN_RANGES:,} more runs" if len(runs) > SHOWN_RANGES else ""
    unit += "" if len(numbers) == 1 else "s"
    return f"{unit} {', '.join(told[:SHOWN_RANGES])}{more}"


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers in order, as first and last of each run."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = runs[-1][0], number
        else:
            runs.append((number, number))
    return runs
