"""This side: Python, what is installed, and the machine, where the server is on it, too. Pure."""

from __future__ import annotations

from chasquimq.cli.check.finding import NOTE, OK, PROBLEM, WARNING, Book, Finding, Severity
from chasquimq.cli.machine import EXTRAS, MachineFacts

KINDS: dict[str, Severity] = {
    "python.versions": OK,
    "python.event-loop": OK,
    "python.no-uvloop": NOTE,
    "python.extras": NOTE,
    "python.slow-reader": WARNING,
    "python.reference-beside": PROBLEM,
    "python.open-files": WARNING,
    "python.no-zones": PROBLEM,
    "host.huge-pages": WARNING,
    "host.overcommit": NOTE,
}

OPEN_FILES = 1_024


def check_python(facts: MachineFacts) -> list[Finding]:
    book = Book(KINDS)
    known = {name: version for name, version in facts.libraries.items() if version is not None}
    book.add(
        "python.versions",
        f"{facts.python}, chasquimq {facts.chasquimq}, "
        + ", ".join(f"{name} {version}" for name, version in known.items()),
        python=facts.python,
        chasquimq=facts.chasquimq,
        libraries=facts.libraries,
    )
    if not facts.reader_is_c:
        book.add(
            "python.slow-reader",
            "hiredis reads answers in Python, not in C: everything is several times slower",
            fix="pip install --force-reinstall 'hiredis>=3.2,<4'",
        )
    if facts.uvloop is None:
        book.add(
            "python.no-uvloop",
            "uvloop is not installed: workers run on asyncio's own event loop, which is slower",
            fix="pip install 'chasquimq-py[uvloop]'",
        )
    else:
        book.add(
            "python.event-loop",
            f"uvloop {facts.uvloop} is installed; workers use it",
            uvloop=facts.uvloop,
            event_loop=facts.event_loop,
        )
    missing = [name for name, there in facts.extras.items() if not there]
    if missing:
        names = ",".join(dict.fromkeys(EXTRAS[name] for name in missing))
        book.add(
            "python.extras",
            f"not installed, and needed only by those who use it: {', '.join(missing)}",
            fix=f"pip install 'chasquimq-py[{names}]'",
            missing=missing,
        )
    if facts.reference is not None:
        book.add(
            "python.reference-beside",
            f"the package chasquimq {facts.reference} is installed beside chasquimq-py, and both "
            "have the import name chasquimq: which of them answers depends on who came last",
            fix="pip uninstall -y chasquimq chasquimq-py && pip install chasquimq-py",
            version=facts.reference,
        )
    if facts.open_files is not None and 0 <= facts.open_files < OPEN_FILES:
        book.add(
            "python.open-files",
            f"a process may open {facts.open_files} files: many workers or producers in one "
            "process run out of connections",
            fix="ulimit -n 65536",
            limit=facts.open_files,
        )
    if not facts.zones:
        book.add(
            "python.no-zones",
            "there are no time zone data: cron expressions with a zone cannot be fired",
            fix="pip install 'tzdata>=2025.2'",
        )
    if facts.server_is_here:
        _host(book, facts)
    return book.found


def _host(book: Book, facts: MachineFacts) -> None:
    if facts.huge_pages == "always":
        book.add(
            "host.huge-pages",
            "transparent huge pages are on: after each snapshot the server copies megabytes "
            "where it writes bytes, and pauses",
            fix="echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if facts.overcommit not in (None, "1"):
        book.add(
            "host.overcommit",
            f"vm.overcommit_memory is {facts.overcommit}: a snapshot or a rewrite may fail for "
            "want of memory that it would not use",
            fix="sudo sysctl vm.overcommit_memory=1",
            overcommit=facts.overcommit,
        )
