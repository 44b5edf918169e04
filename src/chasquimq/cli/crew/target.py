"""The Workers that a target names: `package.module:name`, read, imported, called if need be.

The name is a Worker, several in a list or tuple, or a function without arguments that returns one
of these. Whatever is wrong is said in the words of whoever wrote the command line.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from chasquimq.config import nearest
from chasquimq.errors import ConfigError
from chasquimq.worker import Worker

_FORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_SAMPLE = "package.module:name, as in app.tasks:worker"


class TargetError(ConfigError):
    """It cannot be had. `trace` is the user's part of the traceback, where their code raised."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def check_target(target: str) -> None:
    """Whether it has the form of one; nothing is imported."""
    if not _FORM.fullmatch(target):
        raise TargetError(f"{target!r:.200} is no target: write it as {_SAMPLE}{_hint(target)}")


def _hint(target: str) -> str:
    path, _, name = target.partition(":")
    dotted = path.removesuffix(".py").strip("./").replace("/", ".").replace("\\", ".")
    better = f"{dotted}:{name or 'worker'}"
    return f"; did you mean {better}?" if better != target and _FORM.fullmatch(better) else ""


async def load(target: str) -> list[Worker]:
    """Import it and answer its Workers, at least one."""
    check_target(target)
    module_name, _, name = target.partition(":")
    here = os.getcwd()
    if sys.path[:1] not in ([here], [""]):
        sys.path.insert(0, here)  # as with `python -m`
    module = _imported(module_name)
    found = await _made(_found(module, name), target)
    return _checked(found, target)


def folder_of(target: str) -> str:
    """The folder from which an imported target came: an entry of sys.path, or the package itself
    where that is a folder full of strangers."""
    top = target.partition(":")[0].partition(".")[0]
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None)
    places = list(getattr(module, "__path__", ()))
    if not file and not places:
        return os.getcwd()
    package = Path(places[0]) if places else Path(file or "")
    strange = {"site-packages", "dist-packages"} & set(package.parts)
    return str(package if strange and package.is_dir() else package.parent)


# -- importing -----------------------------------------------------------------------------------


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise _raised(f"importing {name}", error) from None
        if missing.endswith(".py"):  # the file is there, and was just imported
            said = missing.removesuffix(".py")
            raise TargetError(
                f"there is no module {missing!r}; write {said!r}, without .py"
            ) from None
        raise TargetError(f"there is no module {missing!r}{_near_module(missing)}") from None
    except SystemExit as error:
        raise _ended(f"importing {name}", error) from None
    except BaseException as error:
        raise _raised(f"importing {name}", error) from None


def _near_module(missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    places = getattr(sys.modules.get(parent), "__path__", ()) if parent else [os.getcwd()]
    known = [one.name for one in pkgutil.iter_modules(places)]
    where = f" in {parent}" if parent else " in this folder"
    if not known:
        return f", and nothing to import{where}; start chasqui where your code is"
    return f"{where}; {nearest(last, known)}"


def _raised(doing: str, error: BaseException) -> TargetError:
    words = traceback.format_exception_only(error)[-1].strip()
    return TargetError(f"{doing} failed: {words}", _trace(error))


def _ended(doing: str, error: SystemExit) -> TargetError:
    return TargetError(
        f"{doing} ended the program (exit code {error.code}): guard what it shall "
        'do as a program with `if __name__ == "__main__":`',
        _trace(error),
    )


def _trace(error: BaseException) -> str:
    """The traceback from where strangers' code begins."""
    lines = traceback.TracebackException.from_exception(error)
    lines.stack = traceback.StackSummary.from_list(_theirs(error.__traceback__))
    return "".join(lines.format())


def _theirs(trace: TracebackType | None) -> Iterable[traceback.FrameSummary]:
    frames = list(traceback.extract_tb(trace))
    while frames and (frames[0].filename == __file__ or "importlib" in frames[0].filename):
        frames.pop(0)
    return frames


# -- what it names -------------------------------------------------------------------------------


def _found(module: ModuleType, name: str) -> Any:
    found: Any = module
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(_no_such_name(module, found, part)) from None
        except Exception as error:
            raise _raised(f"looking for {part!r} in {module.__name__}", error) from None
    return found


def _no_such_name(module: ModuleType, holder: Any, part: str) -> str:
    where = f"module {module.__name__}" if holder is module else f"{type(holder).__name__}"
    workers = [name for name, value in vars(module).items() if _is_workers(value)]
    if workers:
        return f"{where} has no {part!r}; its Workers: {', '.join(workers)}"
    known = [name for name in dir(holder) if not name.startswith("_")]
    if nearest(part, known).startswith("did you"):
        return f"{where} has no {part!r}; {nearest(part, known)} There is no Worker in it"
    return f"{where} has no {part!r}, and no Worker"


def _is_workers(value: Any) -> bool:
    several = value if isinstance(value, list | tuple) else [value]
    return bool(several) and all(isinstance(one, Worker) for one in several)


async def _made(found: Any, target: str) -> Any:
    """The same, or what it returned if it is a factory."""
    if not callable(found) or isinstance(found, type):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        raise TargetError(
            f"{target} is called without arguments, but: {error}. Is it a handler? A target is the "
            'Worker that has it, as in worker = Worker("mail", handle)'
        ) from None
    try:
        made = found()
        return await made if inspect.isawaitable(made) else made
    except SystemExit as error:
        raise _ended(f"calling {target}", error) from None
    except Exception as error:
        raise _raised(f"calling {target}", error) from None


def _checked(found: Any, target: str) -> list[Worker]:
    several: Sequence[Any] = found if isinstance(found, list | tuple) else [found]
    if not several:
        raise TargetError(f"{target} is empty: there is no Worker to run")
    for one in several:
        if not isinstance(one, Worker):
            what = "a class" if isinstance(one, type) else f"of type {type(one).__name__}"
            within = " (in a list)" if one is not found else ""
            raise TargetError(
                f"{target} is {what}{within}; a Worker is needed, several of them in a list, or a "
                "function without arguments that returns them"
            )
    seen: set[tuple[str, str, str]] = set()
    for place, worker in enumerate(several):
        if any(worker is other for other in several[:place]):
            raise TargetError(f"{target} has the same Worker of {worker.name!r} twice")
        if worker.consumer_id is not None:
            name = (worker.name, worker.options.group, worker.consumer_id)
            if name in seen:
                raise TargetError(
                    f"two Workers of queue {worker.name!r} have the consumer_id "
                    f"{worker.consumer_id!r}: give each its own, or none"
                )
            seen.add(name)
    return list(several)
