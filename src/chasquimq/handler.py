"""Which function runs which job: one for all of a queue, or one per name.

router = Router()

@router.on("welcome", time_limit_ms=5_000)
async def welcome(job): ...

@router.otherwise
async def anything_else(job): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar, cast

from chasquimq.config import check_least, suggesting
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import Again, Dead, Job
from chasquimq.text import shown

Handler = Callable[[Job], Awaitable[Any] | Any]
OnError = Callable[[Job, BaseException, Again | Dead], Awaitable[None] | None]
F = TypeVar("F", bound=Callable[..., Any])

_SHAPE = "a handler is `async def handle(job): ...` or `def handle(job): ...`"


class Route(NamedTuple):
    """A handler, and how long a run of it may take (None: as the worker says)."""

    handler: Callable[[Any], Any]
    time_limit_ms: int | None = None


class Router:
    """Handlers by the name of the job. Without `otherwise` a job of another name is buried."""

    def __init__(self, handlers: Mapping[str, Callable[[Any], Any] | Route] | None = None) -> None:
        self.routes: dict[str, Route] = {}
        self.default: Route | None = None
        if handlers is None:
            return
        given: object = handlers
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise ArgumentError(
                f"Router takes a mapping of job names to handlers, got {kind}; one handler for all "
                "jobs is given to the Worker itself"
            )
        for name, handler in handlers.items():
            self._add(name, handler if isinstance(handler, Route) else Route(handler))

    @suggesting
    def on(self, *names: str, time_limit_ms: int | None = None) -> Callable[[F], F]:
        """Decorate the handler of jobs with one of these names."""
        if not names:
            raise ArgumentError(
                'on() needs at least one job name: @router.on("welcome"); the handler of all other '
                "names is decorated with @router.otherwise"
            )
        if callable(names[0]):
            example = getattr(names[0], "__name__", "welcome")
            raise ArgumentError(
                "@router.on is used without parentheses: give it the names of the jobs, as in "
                f'@router.on("{shown(example, 80)}")'
            )

        def register(handler: F) -> F:
            for name in names:
                self._add(name, Route(handler, time_limit_ms))
            return handler

        return register

    def otherwise(self, handler: F = cast(Any, None)) -> F:  # noqa: B008
        """Decorate the handler of jobs with any other name."""
        # The default is there for `@router.otherwise()`, whose mistake it lets us name.
        if handler is None or isinstance(handler, str):
            raise ArgumentError(
                "@router.otherwise is used without parentheses: it takes no names, and decorates "
                "the function itself"
            )
        if self.default is not None:
            raise ConfigError("there is a handler for other names already")
        self.default = _checked("other names", Route(handler))
        return handler

    def include(self, other: Router) -> None:
        """Take over all of another router's handlers."""
        given: object = other
        if not isinstance(given, Router):
            raise ArgumentError(f"include() takes a Router, got {type(given).__name__}")
        for name, route in other.routes.items():
            self._add(name, route)
        if other.default is not None:
            self.otherwise(other.default.handler)

    def _add(self, name: str, route: Route) -> None:
        if not isinstance(name, str):
            raise ArgumentError(f"a job's name is a str, got {type(name).__name__}: {name!r:.80}")
        if name in self.routes:
            raise ConfigError(f"there is a handler for {name!r} already")
        self.routes[name] = _checked(repr(name), route)


def read_handler(handler: Any) -> Router:
    """One function, a mapping of names to functions, or a router: as a router."""
    if isinstance(handler, Router):
        if not handler.routes and handler.default is None:
            raise ConfigError("this router has no handlers")
        return handler
    if isinstance(handler, Mapping):
        if not handler:
            raise ConfigError("this mapping has no handlers")
        return Router(handler)
    router, route = Router(), handler if isinstance(handler, Route) else Route(handler)
    router.default = _checked("the queue", route)
    return router


def _checked(what: str, route: Route) -> Route:
    _check_handler(f"the handler of {what}", route.handler)
    if route.time_limit_ms is not None:
        check_least("time_limit_ms", route.time_limit_ms, 1)
    return route


def _check_handler(what: str, handler: object) -> None:
    """Refuse what cannot be called with a job, or would not run when it is."""
    name = shown(str(getattr(handler, "__name__", None) or type(handler).__name__), 80)
    if inspect.isawaitable(handler):
        raise ArgumentError(f"{what} is a coroutine: pass {name} itself, not {name}(...)")
    if isinstance(handler, type):
        raise ArgumentError(
            f"{what} is the class {name}: pass a function, or an instance that has "
            "__call__(self, job)"
        )
    if not callable(handler):
        kind = type(handler).__name__
        raise ArgumentError(f"{what} must be a function, got {kind}; {_SHAPE}")
    for function in (handler, type(handler).__call__):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ArgumentError(
                f"{what}, {name}, is a generator function: because of its yield its body would "
                f"never run; return the result instead. {_SHAPE}"
            )
    try:
        # Not that of what it wraps: a decorator may give the wrapped function more arguments.
        signature = inspect.signature(handler, follow_wrapped=False)
    except Exception:  # builtins have none, and annotations may name what is not there
        return
    try:
        signature.bind(None)
    except TypeError:
        words = shown(f"{name}{_without_values(signature)}", 300)
        raise ArgumentError(
            f"{what} is called with one argument, the job, which {words} does not accept; "
            f"{_SHAPE}; bind other arguments with functools.partial"
        ) from None


def _without_values(signature: inspect.Signature) -> str:
    """The names of the parameters; their defaults may hold a secret."""
    none = inspect.Parameter.empty
    names = [
        one.replace(annotation=none, default=none if one.default is none else ...)
        for one in signature.parameters.values()
    ]
    return str(inspect.Signature(names)).replace("Ellipsis", "...")
