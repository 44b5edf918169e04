"""Plan: "alert rules": names, groups, severities and what they look at.

That each metric and label of a rule exists on a running worker: tests/observe/test_dashboard.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

RULES = Path(__file__).parents[3] / "docs/alerts/chasquimq.rules.yml"


def lines() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            name = rule["alert"]
            yield f"{name}: group {group['name']}"
            yield f"{name}: labels {rule['labels']}, for {rule.get('for', '0s')}"
            for metric in sorted(set(re.findall(r"\bchasquimq_\w+", rule["expr"]))):
                yield f"{name}: looks at {metric}"
            for label in sorted(set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))):
                yield f"{name}: names its {label}"
