"""The Grafana dashboard and the alert rules name only what a real worker shows."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from chasquimq import Job, RepeatPattern
from chasquimq.address import read_url
from chasquimq.observe.probe import Probe, Target
from chasquimq.observe.prometheus import PrometheusSink
from chasquimq.store import Dialer
from tests.engine.desk import Desk, eventually
from tests.observe.kit import Samples

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "grafana/chasquimq.json").read_text())
RULES = yaml.safe_load((DOCS / "alerts/chasquimq.rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
SCRAPED = {"instance", "job"}  # labels that Prometheus adds to whatever it scrapes


def readable(expression: str) -> str:
    """With what Grafana would put in the place of its own variables."""
    return expression.replace("$__rate_interval", "5m").replace("$queue", "q").replace("$name", "n")


EXPRESSIONS = [
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in ALERTS),
    *(
        pytest.param(readable(target["expr"]), id=f"{panel['title']} {target['refId']}")
        for panel in PANELS
        for target in panel["targets"]
    ),
]


def selectors(node: Any) -> Iterator[tuple[str, set[str]]]:
    """Every metric in an expression, with the labels it is selected by."""
    if isinstance(node, promql.VectorSelector):
        yield node.name, {matcher.name for matcher in node.matchers.matchers}
    elif isinstance(node, promql.MatrixSelector):
        yield from selectors(node.vector_selector)
    else:
        for inner in _inside(node):
            yield from selectors(inner)


def groupings(node: Any) -> Iterator[tuple[Any, set[str]]]:
    """Every `by (...)` and `on (...)`, with what it is about."""
    if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
        yield node.expr, set(node.modifier.labels)
    if isinstance(node, promql.BinaryExpr) and node.modifier is not None:
        matching = node.modifier.matching
        if matching is not None:
            yield node.lhs, set(matching.labels)
            yield node.rhs, set(matching.labels)
    for inner in _inside(node):
        yield from groupings(inner)


def _inside(node: Any) -> list[Any]:
    found = [getattr(node, name, None) for name in ("expr", "lhs", "rhs", "param")]
    return [one for one in (*found, *(getattr(node, "args", None) or ())) if one is not None]


@pytest.fixture(scope="module")
def shown(servers: Any) -> Samples:
    """What a real worker, a producer and a probe show after a few jobs of all kinds."""
    from tests.servers import DIALECTS

    desk = Desk(servers.shared(DIALECTS[-1]), "dashboard")

    async def handler(job: Job) -> None:
        if job.name == "bad":
            raise ValueError("no")

    async def main() -> bytes:
        registry = CollectorRegistry()
        target = Target(desk.name, Dialer(read_url(desk.server.url)), limit=1_000)
        probe = Probe([target], fresh_s=0.0)
        sink = PrometheusSink(desk.name, registry, probe=probe)
        async with desk.queue(metrics=sink) as queue, desk.working(handler, metrics=sink):
            await queue.add("bad", None, attempts=2, backoff=1)
            await queue.add("later", None, delay=3_600_000)
            await queue.upsert_repeatable_job("tick", None, repeat=RepeatPattern.every(10))
            tally = lambda: sink.snapshot().queues[desk.name]  # noqa: E731
            await eventually(lambda: desk.dead() and tally().counts["fired"])
            await eventually(lambda: tally().specs is not None and tally().delayed is not None)
            await eventually(lambda: sink.snapshot().workers)
            page = await asyncio.to_thread(generate_latest, registry)
        probe.close()
        desk.redis.delete(*desk.redis.keys("{chasqui:dashboard}*"))
        return page

    return Samples(asyncio.run(main()))


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_names_metrics_and_labels_that_exist(expression: str, shown: Samples) -> None:
    parsed = promql.parse(expression)
    found = list(selectors(parsed))
    assert found
    for metric, labels in found:
        assert shown.labels(metric), f"there is no {metric}"
        assert labels <= shown.labels(metric) | SCRAPED, metric
    for inner, labels in groupings(parsed):
        for metric, _ in selectors(inner):
            assert labels <= shown.labels(metric) | SCRAPED, metric


def test_the_test_sees_what_does_not_exist(shown: Samples) -> None:
    with pytest.raises(AssertionError, match="there is no chasquimq_nope"):
        test_an_expression_names_metrics_and_labels_that_exist("sum(chasquimq_nope)", shown)
    for wrong in (
        'chasquimq_workers{nope="x"}',
        "sum by (name) (chasquimq_workers)",
        "chasquimq_workers unless on (role) chasquimq_lock_held",
    ):
        with pytest.raises(AssertionError, match="chasquimq_workers"):
            test_an_expression_names_metrics_and_labels_that_exist(wrong, shown)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_a_queue_holds_is_never_added_up_over_processes(expression: str) -> None:
    """Every process tells the same: the sum would grow with the number of processes."""

    def check(node: Any) -> None:
        adds = isinstance(node, promql.AggregateExpr) and str(node.op) == "sum"
        if adds and isinstance(node.expr, promql.VectorSelector):
            assert not node.expr.name.startswith("chasquimq_queue_")
        for inner in _inside(node):
            check(inner)

    check(promql.parse(expression))


def test_a_sum_of_what_queues_hold_is_seen() -> None:
    with pytest.raises(AssertionError):
        test_what_a_queue_holds_is_never_added_up_over_processes("sum(chasquimq_queue_dead) > 1")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counters_are_looked_at_as_rates_and_gauges_are_not(expression: str) -> None:
    for metric, inside in _ranges(promql.parse(expression), ""):
        counter = metric.endswith(("_total", "_bucket", "_sum", "_count"))
        assert (inside in ("rate", "increase")) == counter, metric


def _ranges(node: Any, inside: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, promql.VectorSelector):
        yield node.name, inside
    elif isinstance(node, promql.MatrixSelector):
        yield node.vector_selector.name, inside
    elif isinstance(node, promql.Call):
        for inner in node.args:
            yield from _ranges(inner, node.func.name)
    else:
        for inner in _inside(node):
            yield from _ranges(inner, inside)


# -- alerts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_tells_the_operator_what_to_run(rule: dict[str, Any], shown: Samples) -> None:
    assert re.fullmatch(r"Chasqui[A-Z]\w+", rule["alert"])
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
    texts = rule["annotations"]
    assert set(texts) == {"summary", "description"}
    commands = re.findall(r"`(chasqui [^`]+)`", texts["description"])
    assert commands, "which command helps?"
    for command in commands:
        _exists(command)
    labels = set(re.findall(r"\$labels\.(\w+)", " ".join(texts.values())))
    known = [shown.labels(metric) for metric, _ in selectors(promql.parse(rule["expr"]))]
    assert labels <= set().union(*known) | SCRAPED


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in ALERTS]
    assert len(set(names)) == len(names)
    asked = {"NotDrained", "DeadLetters", "NoWorkers", "LeasesLost", "EventsDropped"}
    asked |= {"PromoterLag", "LoopBlocked", "ReconnectStorm", "PausedForLong"}
    assert all(any(word in name for name in names) for word in asked)


def _exists(command: str) -> None:
    """The command, its options and the number of its arguments, as `chasqui` has them."""
    from chasquimq.cli.app import build_whole

    words = re.sub(r"\{\{[^}]*\}\}", "mail", command).replace("<key>", "key").split()
    node: Any = build_whole()
    rest = words[1:]
    while hasattr(node, "commands"):
        assert rest and rest[0] in node.commands, f"there is no {command}"
        node, rest = node.commands[rest[0]], rest[1:]
    context = node.make_context(words[1], list(rest), resilient_parsing=False)
    context.close()


# -- the dashboard ---------------------------------------------------------------------------------


def test_every_panel_has_a_number_of_its_own_and_something_to_show() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in PANELS:
        assert panel["title"]
        assert panel["targets"], panel["title"]
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for thing in (panel, *panel["targets"]):
            assert thing["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_lie_side_by_side() -> None:
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] >= 0 and place["x"] + place["w"] <= 24 and place["h"] > 0
    for one, other in itertools.combinations(DASHBOARD["panels"], 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])


def test_the_rows_are_what_an_operator_looks_for() -> None:
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == [
        "At a glance",
        "Throughput",
        "How long handlers take",
        "How full queues are",
        "Failures, retries, the DLQ",
        "Leases, and what others left",
        "Delayed jobs and schedules",
        "Health",
    ]


def test_its_variables_are_used_and_asked_of_metrics_that_exist(shown: Samples) -> None:
    variables = {one["name"]: one for one in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "queue", "name"]
    for name in ("queue", "name"):
        asked = variables[name]["query"]["query"]
        metric, label = re.fullmatch(r"label_values\((\w+)[^,]*, (\w+)\)", asked).groups()  # type: ignore[union-attr]
        assert label in shown.labels(metric)
        assert label == name
    every = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert "$queue" in every and "$name" in every


def test_every_metric_there_is_can_be_seen_on_the_dashboard(shown: Samples) -> None:
    every = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    metrics = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric, _ in shown}
    assert not [metric for metric in metrics if metric not in every]
