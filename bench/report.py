"""What was measured, as a table to read and as JSON to compare."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import layout
from scenarios import Scenario

Results = list[dict[str, Any]]


@dataclass
class Outcome:
    """All rounds of one scenario: ours, and what it is compared with, round by round."""

    scenario: Scenario
    ours: Results = field(default_factory=list)
    other: Results = field(default_factory=list)

    def ratios(self) -> list[float]:
        pairs = zip(self.ours, self.other, strict=True)
        return [mine["rate"] / theirs["rate"] for mine, theirs in pairs]

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario.name,
            "against": self.scenario.against or "reference",
            "target": self.scenario.target,
            "ratio": _spread(self.ratios()),
            "ours": _figures(self.ours),
            "other": _figures(self.other),
        }


def table(outcomes: list[Outcome]) -> list[str]:
    """Rows of a Markdown table, padded so that it reads as text too."""
    head = [
        "scenario", "ratio", "min–max", "target",
        "jobs/s", "against", "CPU s/100k", "against", "Redis CPU", "against",
    ]  # fmt: skip
    return layout.table([head, *(_row(outcome) for outcome in outcomes)])


def others(outcomes: list[Outcome]) -> str:
    """How disturbed the measurements were: cores used by neither side nor its server."""
    seen = [run["others"] for outcome in outcomes for run in (*outcome.ours, *outcome.other)]
    return f"median {median(seen):.1f}, at most {max(seen):.1f}"


def _row(outcome: Outcome) -> list[str]:
    ratios, target = outcome.ratios(), outcome.scenario.target
    figures = [
        f"{_median(side, key):{form}}"
        for key, form in (("rate", ",.0f"), ("cpu_per_100k", ".2f"), ("server_cpu_per_100k", ".2f"))
        for side in (outcome.ours, outcome.other)
    ]
    return [
        outcome.scenario.name,
        f"{median(ratios):.2f}x",
        f"{min(ratios):.2f}–{max(ratios):.2f}",
        "" if target is None else f">= {target:g}x",
        *figures,
    ]


def write(
    folder: Path,
    name: str,
    outcomes: list[Outcome],
    facts: dict[str, Any],
    *,
    section: Sequence[str] = (),
    also: Mapping[str, Any] | None = None,
) -> Path:
    """Write `<name>.md`, with a `section` behind its table, and `<name>.json`; answers the first.

    `also` stands in the JSON beside facts and outcomes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{name}.md"
    page.write_text("\n".join(_page(name, outcomes, facts, section)) + "\n")
    raw: dict[str, Any] = {"facts": facts, "outcomes": [outcome.to_dict() for outcome in outcomes]}
    raw |= also or {}
    page.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    return page


def _page(
    name: str, outcomes: list[Outcome], facts: dict[str, Any], section: Sequence[str]
) -> list[str]:
    return [
        f"# {name}",
        "",
        f"Median of {facts['rounds']} rounds; in each round both sides ran one after the other, in",
        "fresh processes on the same server. *Against* is the reference, ChasquiMQ 1.3.0; for",
        "Valkey it is our own worker on Redis. Ratios are what counts: jobs per second belong to",
        "this machine and to what else it did. CPU is the measured process's, Redis CPU the",
        "server's, both in seconds per 100,000 jobs. How it is measured: `bench/README.md`.",
        "",
        *table(outcomes),
        "",
        *section,
        *(f"- {label}: {told(value)}" for label, value in facts.items()),
    ]


def told(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return str(value)


def _median(results: Results, key: str) -> float:
    return float(median(result[key] for result in results))


def _spread(values: list[float]) -> dict[str, Any]:
    every = [round(value, 3) for value in values]
    return {"median": median(every), "min": min(every), "max": max(every), "all": every}


def _figures(results: Results) -> dict[str, Any]:
    keys = ("rate", "seconds", "cpu_per_100k", "server_cpu_per_100k", "others")
    return {key: _spread([result[key] for result in results]) for key in keys}
