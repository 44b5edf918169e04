"""What it costs to encode a model, beside a dict and beside what callers would do by hand.

    .venv/bin/python bench/models.py               # half a minute; prints a page for bench/reports/
    .venv/bin/python bench/models.py --before DIR   # plain data also with `src` of another version

Rows of a table take turns, in each of many rounds; CPU time, median and smallest.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib.util
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from chasquimq import Job, wire

Row = tuple[str, Callable[[Any], Any], Any]
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIELDS = {"id": 7, "to": "a@example.org", "total": 1.5, "paid": True, "tags": ["a"], "note": None}
KINDS: dict[str, Any] = {
    "id": int,
    "to": str,
    "total": float,
    "paid": bool,
    "tags": list[str],
    "note": str | None,
}
LINE: dict[str, Any] = {"text": str, "price": float, "count": int}
LINES = [{"text": "x", "price": 1.5, "count": n} for n in range(10)]


def by_pydantic(name: str, kinds: Any) -> Any:
    return pydantic.create_model(name, **{field: (kind, ...) for field, kind in kinds})


MAKERS: tuple[Any, ...] = (dataclasses.make_dataclass, msgspec.defstruct, by_pydantic)


def three(name: str, kinds: dict[str, Any]) -> list[Any]:
    return [make(name, kinds.items()) for make in MAKERS]


def order(make: Any) -> Any:
    line = make("Line", LINE.items())
    return make("Order", [("lines", list[line])])(lines=[line(**values) for values in LINES])


def tables(before: Callable[[Any], bytes] | None) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    nested = {"to": "a@example.org", "lines": LINES, "meta": {"a": {"b": [1, 2, 3]}}}
    plain: dict[str, Any] = {"a str": "abc", "a dict of 6": FIELDS, "a nested dict": nested}
    if before is not None:
        for label, data in plain.items():
            rows: list[Row] = [("before", before, data), ("now", wire.encode, data)]
            found[f"{label}, encoded"] = rows

    models = [kind(**FIELDS) for kind in three("Order", KINDS)]
    found["6 plain fields, encoded"] = [
        ("a dict", wire.encode, FIELDS),
        ("dataclass", wire.encode, models[0]),
        ("... asdict() first", lambda m: wire.encode(dataclasses.asdict(m)), models[0]),
        ("Struct", wire.encode, models[1]),
        ("... structs.asdict() first", lambda m: wire.encode(msgspec.structs.asdict(m)), models[1]),
        ("Pydantic model", wire.encode, models[2]),
        ("... model_dump() first", lambda m: wire.encode(m.model_dump()), models[2]),
    ]
    dated = [kind(**FIELDS, at=AT) for kind in three("Dated", {**KINDS, "at": datetime})]
    found["the same and a datetime, encoded"] = [
        ("a dict, isoformat()", lambda d: wire.encode({**d, "at": AT.isoformat()}), FIELDS),
        ("dataclass", wire.encode, dated[0]),
        ("Struct", wire.encode, dated[1]),
        ("Pydantic model", wire.encode, dated[2]),
        (
            "... model_dump(mode='json') first",
            lambda m: wire.encode(m.model_dump(mode="json")),
            dated[2],
        ),
    ]
    orders = [order(make) for make in MAKERS]
    found["10 models of 3 fields in a model, encoded"] = [
        ("a dict", wire.encode, {"lines": LINES}),
        ("dataclass", wire.encode, orders[0]),
        ("... asdict() first", lambda m: wire.encode(dataclasses.asdict(m)), orders[0]),
        ("Struct", wire.encode, orders[1]),
        ("Pydantic model", wire.encode, orders[2]),
        ("... model_dump() first", lambda m: wire.encode(m.model_dump()), orders[2]),
    ]
    job = Job("id", "name", wire.decode(wire.encode(dated[0])))
    found["6 fields and a datetime, decoded"] = [
        (kind, job.decode, type(model))
        for kind, model in zip(("dataclass", "Struct", "Pydantic model"), dated, strict=True)
    ]
    return found


def measure(rows: list[Row], rounds: int, calls: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {label: [] for label, _, _ in rows}
    for turn in range(rounds):
        for label, run, data in rows if turn % 2 else reversed(rows):
            start = time.process_time()
            for _ in range(calls):
                run(data)
            times[label].append((time.process_time() - start) / calls * 1e6)
    return times


def load(source: Path) -> Callable[[Any], bytes]:
    """`encode` of another version; all else is ours."""
    spec = importlib.util.spec_from_file_location("before", source / "chasquimq/wire/payload.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    encode: Callable[[Any], bytes] = module.encode
    return encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--before", type=Path, help="the `src` of a version to compare with")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--calls", type=int, default=2_000)
    chosen = parser.parse_args()
    gc.disable()
    before = load(chosen.before) if chosen.before else None
    print(f"# What a model costs\n\n`bench/models.py`, {chosen.rounds} rounds, µs of CPU per call.")
    for title, rows in tables(before).items():
        print(f"\n| {title} | median | smallest |\n|---|---|---|")
        for label, times in measure(rows, chosen.rounds, chosen.calls).items():
            print(f"| {label} | {statistics.median(times):.2f} | {min(times):.2f} |")


if __name__ == "__main__":
    main()
