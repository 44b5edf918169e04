"""Every kind of finding there is, with its severity."""

from __future__ import annotations

from chasquimq.cli.check import access, clock, python, queue, schedule, server, weight
from chasquimq.cli.check.finding import Severity

CATALOG: dict[str, Severity] = {
    code: severity
    for subject in (server, access, clock, queue, schedule, weight, python)
    for code, severity in subject.KINDS.items()
}
