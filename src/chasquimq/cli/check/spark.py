"""Whether Spark can read and write queues from here. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from chasquimq.cli.check.access import patterns
from chasquimq.cli.check.finding import (
    NOTE,
    OK,
    PROBLEM,
    WARNING,
    Book,
    Finding,
    Severity,
    Shell,
)
from chasquimq.spark.exam import PythonFacts, SparkFacts
from chasquimq.spark.java import OLDEST, TRIED
from chasquimq.spark.right import Rights
from chasquimq.spark.trial import Ended

KINDS: dict[str, Severity] = {
    "spark.versions": OK,
    "spark.not-installed": PROBLEM,
    "spark.too-old": PROBLEM,
    "spark.pandas-3": WARNING,
    "spark.other-home": WARNING,
    "spark.java": OK,
    "spark.no-java": PROBLEM,
    "spark.java-home": WARNING,
    "spark.java-wheel": NOTE,
    "spark.java-untried": NOTE,
    "spark.workers": OK,
    "spark.workers-python": PROBLEM,
    "spark.workers-lack": PROBLEM,
    "spark.workers-path": WARNING,
    "spark.workers-version": WARNING,
    "spark.rights": OK,
    "spark.rights-read": PROBLEM,
    "spark.rights-write": WARNING,
    "spark.rights-act": NOTE,
    "spark.rights-work": NOTE,
    "spark.rights-keys": PROBLEM,
    "spark.session": OK,
    "spark.session-failed": PROBLEM,
    "spark.scratch-left": WARNING,
}

# What matters of a server to Spark; `chasqui doctor` tells the rest.
OF_THE_SERVER = {
    "server.version",
    "server.crashing-version",
    "server.too-old",
    "server.cluster",
    "server.replica",
    "server.hidden",
    "server.eviction-allkeys",
    "server.eviction-volatile",
}
INSTALL = "pip install 'chasquimq-py[spark]'"
NEEDED = {"pyspark": (4, 2), "pyarrow": (18,)}  # as pyproject.toml has it


def check_spark(facts: SparkFacts) -> list[Finding]:
    book = Book(KINDS)
    _packages(book, facts.driver)
    _home(book, facts)
    _java(book, facts)
    if all(one.code != "spark.not-installed" for one in book.found):  # for nobody, then
        _workers(book, facts.driver, facts.workers)
    return book.found


def _packages(book: Book, driver: PythonFacts) -> None:
    known = {name: version for name, version in driver.packages.items() if version is not None}
    book.add(
        "spark.versions",
        f"Python {driver.version} ({driver.program}), "
        + ", ".join(f"{name} {version}" for name, version in known.items()),
        python=driver.version,
        program=driver.program,
        packages=driver.packages,
    )
    missing = [name for name in NEEDED if name not in known]
    if missing:
        book.add(
            "spark.not-installed",
            f"not installed for this Python: {', '.join(missing)}",
            fix=INSTALL,
            missing=missing,
        )
    elif not driver.has_source:
        book.add(
            "spark.not-installed",
            "this Python cannot import pyspark_chasqui, under which name Spark looks for "
            "format('chasqui')",
            fix="pip install --force-reinstall --no-deps chasquimq-py",
            missing=["pyspark_chasqui"],
        )
    for name, floor in NEEDED.items():
        if name in known and _numbers(known[name]) < floor:
            wanted = ".".join(map(str, floor))
            book.add(
                "spark.too-old",
                f"{name} {known[name]} is too old: {wanted} or newer is needed",
                fix=INSTALL,
                package=name,
                version=known[name],
            )
    if _numbers(known.get("pandas", "")) >= (3,):
        book.add(
            "spark.pandas-3",
            f"pandas {known['pandas']}: Spark warns of it, and is not tested with it",
            fix="pip install 'pandas>=2.2,<3'",
            version=known["pandas"],
        )


def _home(book: Book, facts: SparkFacts) -> None:
    ours, theirs = facts.driver.packages.get("pyspark"), facts.spark_home_version
    if facts.spark_home and theirs != ours:
        book.add(
            "spark.other-home",
            f"SPARK_HOME is {facts.spark_home}, which "
            + (f"is Spark {theirs}, while pyspark is {ours}" if theirs else "holds no Spark")
            + ": sessions are started from there",
            fix="unset SPARK_HOME",
            spark_home=facts.spark_home,
            version=theirs,
        )


def _java(book: Book, facts: SparkFacts) -> None:
    java, home = facts.java.java, facts.java_home
    passed_over = "; ".join(f"{name} {why}" for name, why in facts.java.passed_over)
    if java is None:
        book.add(
            "spark.no-java",
            f"Spark needs Java {OLDEST} or newer, and there is none"
            + (f": {passed_over}" if passed_over else "; the extra brings one"),
            fix="pip install 'chasquimq-py[spark-java]'",
        )
        return
    told = f"Java {java.version} ({java.program}, by {java.said_by})"
    book.add("spark.java", told, version=java.version, program=str(java.program), home=home)
    export = None if home is None else f"export JAVA_HOME={shlex.quote(home)}"
    if passed_over:
        book.add(
            "spark.java-home",
            f"{passed_over}: chasquimq.spark.session runs on Java {java.version} instead, "
            "spark-submit does not",
            fix=export,
        )
    elif home is not None:
        book.add(
            "spark.java-wheel",
            "this Java lacks a module that Spark asks for. chasquimq.spark.session knows; "
            "spark-submit needs to be told",
            fix=export,
            java_home=home,
        )
    if java.version not in TRIED:
        book.add(
            "spark.java-untried",
            f"Spark is tested with Java {', '.join(map(str, TRIED))}, not with {java.version}",
            version=java.version,
        )


def _workers(book: Book, driver: PythonFacts, workers: PythonFacts) -> None:
    """A session of ours runs workers with this Python; spark-submit goes by PYSPARK_PYTHON, else by
    PATH. What was said is a problem if it is wrong, what nobody said a warning."""
    said = workers.said_by == "PYSPARK_PYTHON"
    fix = f"export PYSPARK_PYTHON={shlex.quote(driver.program)}"
    whose = f"{workers.program} (by {workers.said_by})"
    lacks = [
        name
        for name in ("pyspark", "pyarrow", "hiredis", "msgspec")
        if not workers.packages.get(name)
    ]
    if not workers.has_source:
        lacks.insert(0, "chasquimq-py")
    if workers.version is None:
        trouble = f"{workers.trouble}"
    elif workers.minor != driver.minor:
        trouble = f"it is Python {workers.version}, and this one {driver.version}"
    elif lacks:
        trouble = f"it lacks {', '.join(lacks)}"
    elif workers.packages != driver.packages:
        trouble = ""
        _differences(book, driver, workers, whose)
    else:
        trouble = ""
        book.add("spark.workers", f"workers are run by {whose}, as the driver is", program=whose)
    if not trouble:
        return
    if not said:
        code = "spark.workers-path"
        text = (
            f"spark-submit would run workers with {whose}: {trouble}. A session of ours would not"
        )
    else:
        code = "spark.workers-lack" if workers.version and lacks else "spark.workers-python"
        text = f"workers would be run by {whose}: {trouble}"
    book.add(code, text, fix=fix, program=workers.program, version=workers.version, lacks=lacks)


def _differences(book: Book, driver: PythonFacts, workers: PythonFacts, whose: str) -> None:
    other = {
        name: version
        for name, version in workers.packages.items()
        if version != driver.packages.get(name) and name != "grpcio"
    }
    if not other:
        book.add("spark.workers", f"workers are run by {whose}", program=workers.program)
        return
    told = ", ".join(f"{name} {version}" for name, version in other.items())
    book.add(
        "spark.workers-version",
        f"workers are run by {whose}, with other versions than the driver: {told}",
        fix=f"export PYSPARK_PYTHON={shlex.quote(driver.program)}",
        packages=other,
    )


def check_rights(rights: Rights, shell: Shell) -> list[Finding]:
    book = Book(KINDS)
    user = rights.user
    for code, missing, who in (
        ("spark.rights-read", rights.read, "reads"),
        ("spark.rights-write", rights.write, "writes"),
        ("spark.rights-act", rights.act, "replay and purge"),
        ("spark.rights-work", rights.work, "handlers in tasks (chasqui spark work)"),
    ):
        if missing:
            book.add(
                code,
                f"the user {user!r} may not run {', '.join(missing)}, which {who} need",
                fix=shell.redis("ACL", "SETUSER", user, *[f"+{name}" for name in missing]),
                user=user,
                missing=list(missing),
            )
    if rights.keys:
        names = ", ".join(map(repr, rights.keys))
        book.add(
            "spark.rights-keys",
            f"the user {user!r} may not use the keys of {names}",
            fix=shell.redis("ACL", "SETUSER", user, *[patterns(q)[0] for q in rights.keys]),
            user=user,
            queues=list(rights.keys),
        )
    if not book.found:
        book.add(
            "spark.rights",
            f"the user {user!r} may do all that Spark needs ({rights.tried} commands, tried "
            "without effect)",
            user=user,
            tried=rights.tried,
        )
    return book.found


def check_session(ended: Ended, left: Sequence[str], shell: Shell) -> list[Finding]:
    book = Book(KINDS)
    told = ended.told
    if told is None:
        book.add(
            "spark.session-failed",
            f"a session was started, to write and read a queue, and failed: {ended.trouble}",
        )
    elif not told["whole"]:
        book.add(
            "spark.session-failed",
            f"what was written was not what was read: {told['rows']} rows",
            **told,
        )
    else:
        book.add(
            "spark.session",
            f"a session (Spark {told['spark']}) started in {told['start_s']} s, wrote and read "
            f"{told['rows']} jobs in {told['rows_s']} s",
            **told,
        )
    if left:
        book.add(
            "spark.scratch-left",
            f"a queue that was made for the session could not be removed: {', '.join(left)}",
            fix=shell.redis("UNLINK", *left),
            keys=list(left),
        )
    return book.found


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts[:3] if part.isdigit())
