"""Repeatable specs as sheets: what there is, and when it fires. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from chasquimq.cli.fit import fit
from chasquimq.cli.render import brief, number
from chasquimq.cli.sheet import Cell, Column, Sheet, sheet
from chasquimq.policy.moment import epoch_ms
from chasquimq.repeat import PAUSED_MS, MissedFiresPolicy, RepeatableMeta, RepeatPattern

# Which columns a narrow terminal does without, the first ones first: the key names most of it.
GIVE_WAY = ("missed fires", "job_name", "limit", "fired", "tz", "next fire (ms)")
KEY_FOLD = 24
PUT_ASIDE = "put aside"


def specs(found: Sequence[RepeatableMeta], now_ms: int, *, more: bool, width: int | None) -> Sheet:
    """A row each: the columns of the reference, then ours."""
    notes = [f"{one.key}: {one.problem}" for one in found if one.problem is not None]
    if more:
        notes.append(f"there are more than these {len(found):,}; --limit shows them")
    table = sheet(
        (
            Column("key", wide=True),
            Column("job_name", wide=True),
            "pattern",
            "tz",
            number("next fire (ms)"),
            number("limit"),
            number("in"),
            number("fired"),
            "state",
            "missed fires",
        ),
        (
            (
                one.key,
                one.job_name,
                pattern(one.pattern),
                zone(one.pattern),
                None if one.next_fire_ms >= PAUSED_MS else str(one.next_fire_ms),
                one.limit or None,
                coming(one, now_ms),
                one.fired,
                state(one),
                missed(one.missed_fires),
            )
            for one in found
        ),
        notes=notes,
        empty="(no repeatable jobs)",
    )
    return fit(table, width, GIVE_WAY, "a wider window, a pipe or --json has them", KEY_FOLD)


def fires(times: Sequence[datetime], now_ms: int, *, width: int | None) -> Sheet:
    """When it fires: on the clock of its zone, and on that of the server."""
    own = str(times[0].tzinfo) if times else "UTC"
    table = sheet(
        (*([] if own == "UTC" else [own]), "UTC", number("epoch ms"), number("in")),
        (
            (
                *([] if own == "UTC" else [f"{one:%a} {_iso(one)}"]),
                f"{'' if own != 'UTC' else f'{one:%a} '}{_utc(one)}",
                str(epoch_ms(one)),
                until(epoch_ms(one), now_ms),
            )
            for one in times
        ),
        empty="(it does not fire again)",
    )
    return fit(table, width, ("epoch ms",))


def spec_json(one: RepeatableMeta, now_ms: int) -> dict[str, Any]:
    fires = not one.paused and one.problem is None
    in_ms = one.next_fire_ms - now_ms if fires else None
    return one.to_dict() | {"state": state(one).text, "in_ms": in_ms}


def fires_json(times: Sequence[datetime]) -> list[dict[str, Any]]:
    return [{"at": one.isoformat(), "ms": epoch_ms(one)} for one in times]


def pattern(one: RepeatPattern) -> str:
    if one.kind == "every":
        return f"every {one.interval_ms}ms"
    return one.expression or one.kind


def zone(one: RepeatPattern) -> str | None:
    """UTC when a calendar names none; an interval has none."""
    return (one.tz or "UTC") if one.kind == "cron" else None


def state(one: RepeatableMeta) -> Cell:
    if one.problem is not None:
        return Cell(PUT_ASIDE, "bad")
    return Cell("paused", "warn") if one.paused else Cell("firing", "good")


def coming(one: RepeatableMeta, now_ms: int) -> Cell | str | None:
    if one.paused or one.problem is not None:
        return None
    return until(one.next_fire_ms, now_ms)


def until(at_ms: int, now_ms: int) -> Cell | str | None:
    """How long it is until then; what is overdue is told as such."""
    if at_ms >= now_ms:
        return brief(at_ms - now_ms)
    return Cell(f"{brief(now_ms - at_ms)} late", "warn")


def missed(policy: MissedFiresPolicy | None) -> str:
    if policy is None:
        return "skip"
    return f"{policy.kind}:{policy.max_catchup}" if policy.kind == "fire-all" else policy.kind


def _utc(one: datetime) -> str:
    return _iso(one.astimezone(UTC)).replace("+00:00", "Z")


def _iso(one: datetime) -> str:
    return one.isoformat(sep=" ", timespec="milliseconds" if one.microsecond else "seconds")
