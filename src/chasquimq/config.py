"""Options, one frozen struct per room. Defaults are the documented defaults.

Durations are integer milliseconds and say so: `_ms`. A struct checks itself when it is
built, so the rest of the code never checks again.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar

import msgspec

from chasquimq.errors import ArgumentError, ConfigError

P = ParamSpec("P")
R = TypeVar("R")
Kind = TypeVar("Kind")
Changed = TypeVar("Changed", bound="Options")

OnFull = Literal["raise", "wait", "trim"]
DialectName = Literal["native", "portable"]
Durability = Literal["memory", "local", "replicated"]
EventKinds = Literal["all", "outcomes"]

U32 = 2**32 - 1
ADD_TIMEOUT_MS = 15_000
MAX_MS = 2**53 - 1  # beyond it a sorted set's score, a double, loses whole milliseconds


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every option struct: immutable, keyword-only, typos are errors."""


def at_least(options: Options, floor: int, *names: str) -> None:
    for name in names:
        check_least(name, getattr(options, name), floor)


def check_least(name: str, given: object, floor: int) -> None:
    value = _whole(name, given)
    if value < floor:
        raise ConfigError(f"{name} must be at least {floor}, got {value}")


def within(options: Options, name: str, low: int, high: int) -> None:
    check_within(name, getattr(options, name), low, high)


def check_within(name: str, given: object, low: int, high: int) -> int:
    value = _whole(name, given)
    if not low <= value <= high:
        raise ConfigError(f"{name} must be from {low} to {high}, got {value}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name} is a whole number, got {value!r:.80}")
    return value


def check_text(name: str, given: object) -> None:
    """Whether it is a str that Redis can be told."""
    if not isinstance(given, str):
        raise ArgumentError(f"{name} is a str, got {type(given).__name__}")
    if not given:
        raise ConfigError(f"{name} must not be empty")
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{name} {given!r:.80} is no valid text: {error.reason}") from None


def one_of(name: str, value: object, choices: Iterable[str]) -> None:
    choices = tuple(choices)
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}; got {value!r}")


class ConnectOptions(Options, frozen=True):
    timeout_ms: int = 10_000
    reply_ms: int = 10_000
    retry_ms: int = 50
    max_retry_ms: int = 1_000
    max_retries: int | None = None
    buffer_bytes: int = 262_144

    def __post_init__(self) -> None:
        at_least(self, 1, "timeout_ms", "reply_ms", "retry_ms", "max_retry_ms", "buffer_bytes")
        if self.max_retries is not None:
            at_least(self, 1, "max_retries")


class StreamOptions(Options, frozen=True):
    """How a stream is set up when we are the ones who create it."""

    idmp_max_size: int = 10_000
    idmp_duration_s: int = 900

    def __post_init__(self) -> None:
        within(self, "idmp_max_size", 1, 10_000)
        within(self, "idmp_duration_s", 1, 86_400)


class EventOptions(Options, frozen=True):
    enabled: bool = True
    kinds: EventKinds = "all"
    max_len: int = 100_000
    max_waiting: int = 8_192

    def __post_init__(self) -> None:
        one_of("events", self.kinds, ("all", "outcomes"))
        at_least(self, 1, "max_len", "max_waiting")


class DurabilityOptions(Options, frozen=True):
    """What must have a job before its add returns, and how long it may take to say so."""

    durability: Durability = "memory"
    replicas: int = 1
    durability_timeout_ms: int = 5_000

    def __post_init__(self) -> None:
        check_durability(self.durability)
        within(self, "replicas", 1, 1_000)
        within(self, "durability_timeout_ms", 1, 3_600_000)


def check_durability(durability: object) -> None:
    one_of("durability", durability, ("memory", "local", "replicated"))


class ProducerOptions(Options, frozen=True):
    max_stream_len: int = 1_000_000
    on_full: OnFull = "raise"
    max_delay_secs: int = 2_592_000
    max_payload_bytes: int = 1_048_576
    chunk: int = 64
    # How long an add may take. None: ADD_TIMEOUT_MS, longer where a durable add needs longer, and
    # time in which on_full="wait" waits for room does not count.
    add_timeout_ms: int | None = None
    durable: DurabilityOptions = DurabilityOptions()
    events: EventOptions = EventOptions()
    stream: StreamOptions = StreamOptions()
    connect: ConnectOptions = ConnectOptions()

    def __post_init__(self) -> None:
        at_least(self, 1, "max_stream_len", "max_payload_bytes", "chunk")
        at_least(self, 0, "max_delay_secs")
        if self.add_timeout_ms is not None:
            within(self, "add_timeout_ms", 1, MAX_MS)
        one_of("on_full", self.on_full, ("raise", "wait", "trim"))

    @property
    def trim(self) -> int:
        """To about how many the stream is trimmed by an add; 0: never."""
        return self.max_stream_len if self.on_full == "trim" else 0


class FollowOptions(Options, frozen=True):
    """How a follower reads events."""

    block_ms: int = 5_000
    count: int = 100

    def __post_init__(self) -> None:
        at_least(self, 1, "block_ms", "count")


class ReadOptions(Options, frozen=True):
    batch: int = 256
    block_ms: int = 5_000
    claim_idle_ms: int = 30_000
    claim_every_ms: int = 2_000
    max_payload_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        at_least(self, 1, "batch", "block_ms", "claim_idle_ms", "claim_every_ms")
        at_least(self, 1, "max_payload_bytes")


class SettleOptions(Options, frozen=True):
    """How outcomes are grouped before they are written."""

    batch: int = 64
    idle_ms: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1, "batch")
        at_least(self, 0, "idle_ms")


class RetryOptions(Options, frozen=True):
    max_attempts: int = 25
    delay_ms: int = 100
    max_delay_ms: int = 30_000
    multiplier: float = 2.0
    jitter_ms: int = 100

    def __post_init__(self) -> None:
        within(self, "max_attempts", 1, U32)
        at_least(self, 0, "delay_ms", "max_delay_ms", "jitter_ms")
        if isinstance(self.multiplier, bool) or not isinstance(self.multiplier, int | float):
            raise ArgumentError(f"multiplier is a number, got {self.multiplier!r:.80}")
        if not self.multiplier >= 0:
            raise ConfigError(f"multiplier must not be negative, got {self.multiplier}")


class DeadOptions(Options, frozen=True):
    """The DLQ: beyond `max_len` it warns, unless trimming was asked for."""

    max_len: int = 100_000
    on_full: Literal["warn", "trim"] = "warn"

    def __post_init__(self) -> None:
        at_least(self, 1, "max_len")
        one_of("dlq_on_full", self.on_full, ("warn", "trim"))


class ResultOptions(Options, frozen=True):
    """What handlers return is kept only when asked for, and for a while."""

    enabled: bool = False
    ttl_ms: int = 3_600_000
    max_bytes: int = 16_777_216

    def __post_init__(self) -> None:
        within(self, "ttl_ms", 1, MAX_MS)
        at_least(self, 1, "max_bytes")

    @property
    def ttl_s(self) -> int:
        return -(-self.ttl_ms // 1000)


class UntilOptions(Options, frozen=True):
    """When a worker stops by itself: on an empty queue, after so many runs, after so long."""

    empty: bool = False
    max_jobs: int | None = None
    max_runtime_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_jobs", "max_runtime_ms"):
            if getattr(self, name) is not None:
                at_least(self, 1, name)


class PromoteOptions(Options, frozen=True):
    enabled: bool = True
    batch: int = 256
    poll_ms: int = 1_000
    lock_ttl_s: int = 5

    def __post_init__(self) -> None:
        within(self, "batch", 1, 1_000)  # one script call: the server serves nobody meanwhile
        at_least(self, 1, "poll_ms", "lock_ttl_s")


class ScheduleOptions(Options, frozen=True):
    """`tick_ms`: how often a scheduler looks at the least, and how late a fire is on time."""

    enabled: bool = True
    tick_ms: int = 1_000
    batch: int = 256
    lock_ttl_s: int = 5

    def __post_init__(self) -> None:
        within(self, "batch", 1, 1_000)
        within(self, "tick_ms", 1, 3_600_000)
        within(self, "lock_ttl_s", 1, 86_400)


class JanitorOptions(Options, frozen=True):
    """What dead consumers left is swept by the leader; None is derived from the lease."""

    every_ms: int = 60_000
    ghost_idle_ms: int | None = None
    consumer_idle_ms: int | None = None

    def __post_init__(self) -> None:
        at_least(self, 1, "every_ms")
        for name in ("ghost_idle_ms", "consumer_idle_ms"):
            if getattr(self, name) is not None:
                at_least(self, 0, name)


class WorkerOptions(Options, frozen=True):
    group: str = "default"
    concurrency: int = 100
    drain_ms: int = 25_000
    time_limit_ms: int | None = None
    log_failures: bool = True
    log_runs: bool = False
    read: ReadOptions = ReadOptions()
    settle: SettleOptions = SettleOptions()
    retry: RetryOptions = RetryOptions()
    dead: DeadOptions = DeadOptions()
    events: EventOptions = EventOptions()
    results: ResultOptions = ResultOptions()
    until: UntilOptions = UntilOptions()
    promote: PromoteOptions = PromoteOptions()
    schedule: ScheduleOptions = ScheduleOptions()
    janitor: JanitorOptions = JanitorOptions()
    stream: StreamOptions = StreamOptions()
    connect: ConnectOptions = ConnectOptions()

    def __post_init__(self) -> None:
        at_least(self, 1, "concurrency")
        at_least(self, 0, "drain_ms")
        if self.time_limit_ms is not None:
            at_least(self, 1, "time_limit_ms")
        check_text("group", self.group)


def given(kind: type[Kind], **options: Any) -> Kind:
    """Build an option struct from what was given; None leaves its default."""
    return kind(**{name: value for name, value in options.items() if value is not None})


def changed(options: Changed, **given: Any) -> Changed:
    """The same options with what was given; None leaves one as it is."""
    news = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(options, **news)


def refuse_unknown(names: Iterable[object], known: Iterable[str], where: str) -> None:
    """Raise for the first unknown name, with the nearest known one."""
    known = sorted(known)
    for name in names:
        if name not in known:
            raise ArgumentError(f"{where} has no option {name!r}; {nearest(name, known)}")


def nearest(word: object, known: Sequence[str]) -> str:
    """What to say of a word that nobody knows: the nearest that is known, or all of them. The key
    of a dict may be no word at all."""
    near = difflib.get_close_matches(word, known, n=1) if isinstance(word, str) else []
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def suggesting(function: Callable[P, R]) -> Callable[P, R]:
    """Answer an unknown keyword with the nearest known one, at no cost to correct calls."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            # The class that the caller knows, not the one in which the method happens to stand.
            where = type(args[0]).__name__ if args else function.__qualname__
            if function.__name__ != "__init__":
                where += f".{function.__name__}"
            refuse_unknown(kwargs, known, where)
            raise

    return call
