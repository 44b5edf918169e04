"""Which function runs which job: one for all of a queue, or one per name.

router = Router()

@router.on("welcome", time_limit_ms=5_000)
async def welcome(job): ...

@router.otherwise
async def anything_else(job): ...
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from chasquimq.config import check_least
from chasquimq.errors import ArgumentError, ConfigError
from chasquimq.job import Again, Dead, Job

Handler = Callable[[Job], Awaitable[Any] | Any]
OnError = Callable[[Job, BaseException, Again | Dead], Awaitable[None] | None]
F = TypeVar("F", bound=Callable[..., Any])


class Route(NamedTuple):
    """A handler, and how long a run of it may take (None: as the worker says)."""

    handler: Callable[[Any], Any]
    time_limit_ms: int | None = None


class Router:
    """Handlers by the name of the job. Without `otherwise` a job of another name is buried."""

    def __init__(self, handlers: Mapping[str, Callable[[Any], Any] | Route] | None = None) -> None:
        self.routes: dict[str, Route] = {}
        self.default: Route | None = None
        for name, handler in (handlers or {}).items():
            self._add(name, handler if isinstance(handler, Route) else Route(handler))

    def on(self, *names: str, time_limit_ms: int | None = None) -> Callable[[F], F]:
        """Decorate the handler of jobs with one of these names."""
        if not names:
            raise ConfigError("on() wants at least one name; for all others there is otherwise")

        def register(handler: F) -> F:
            for name in names:
                self._add(name, Route(handler, time_limit_ms))
            return handler

        return register

    def otherwise(self, handler: F) -> F:
        """Decorate the handler of jobs with any other name."""
        if self.default is not None:
            raise ConfigError("there is a handler for other names already")
        self.default = _checked("other names", Route(handler))
        return handler

    def include(self, other: Router) -> None:
        """Take over all of another router's handlers."""
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
    handler: object = route.handler
    if not callable(handler):
        kind = type(handler).__name__
        raise ConfigError(f"the handler of {what} must be a function, got {kind}")
    if route.time_limit_ms is not None:
        check_least("time_limit_ms", route.time_limit_ms, 1)
    return route
