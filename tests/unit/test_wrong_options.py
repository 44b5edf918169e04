"""Options that make no sense are refused where they are given, in words that say what is right."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from chasquimq import (
    ArgumentError,
    BackoffSpec,
    ChasquiError,
    ConfigError,
    Consumer,
    Job,
    Producer,
    Promoter,
    Queue,
    QueueEvents,
    Route,
    Router,
    Scheduler,
    Worker,
    run_workers,
    sync,
)


async def handle(job: Job) -> None: ...


def refused(call: Callable[[], Any], *words: str) -> str:
    with pytest.raises(ArgumentError, match=r"^CMQ-004: ") as error:
        call()
    for word in words:
        assert word in str(error.value), str(error.value)
    return str(error.value)


# -- backoff -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backoff", "delay_ms", "multiplier"),
    [
        (50, 50, 1.0),
        (timedelta(seconds=2), 2_000, 1.0),
        ({"kind": "fixed", "delay_ms": 70}, 70, 1.0),
        ({"kind": "exponential", "delay_ms": 80, "multiplier": 3}, 80, 3.0),
        (BackoffSpec.exponential(90), 90, 2.0),
    ],
)
def test_a_worker_takes_a_backoff_in_every_form_that_add_takes(
    backoff: Any, delay_ms: int, multiplier: float
) -> None:
    retry = Worker("mail", handle, backoff=backoff).options.retry
    assert (retry.delay_ms, retry.multiplier) == (delay_ms, multiplier)


@pytest.mark.parametrize("backoff", ["50", 5.5, True, [50], object])
def test_another_backoff_is_refused_with_its_value(backoff: Any) -> None:
    words = (
        "backoff is a whole number of ms, a timedelta, a BackoffSpec or a dict",
        f"{backoff!r}",
    )
    refused(lambda: Worker("mail", handle, backoff=backoff), *words)
    refused(lambda: Consumer("redis://127.0.0.1", "mail", backoff=backoff), *words)

    async def add() -> None:
        await Queue("mail").add("welcome", None, backoff=backoff)

    refused(lambda: asyncio.run(add()), *words)


def test_a_backoff_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ChasquiError, match="must be fixed or exponential, got 'linear'"):
        Worker("mail", handle, backoff={"kind": "linear", "delay_ms": 5})


# -- redis_url ---------------------------------------------------------------------------------

TAKERS: dict[str, Callable[[Any], Any]] = {
    "Queue": lambda url: Queue("mail", redis_url=url),
    "sync.Queue": lambda url: sync.Queue("mail", redis_url=url),
    "Worker": lambda url: Worker("mail", handle, redis_url=url),
    "QueueEvents": lambda url: QueueEvents("mail", redis_url=url),
    "Producer": lambda url: Producer(url, "mail"),
    "Consumer": lambda url: Consumer(url, "mail"),
    "Promoter": lambda url: Promoter(url, "mail"),
    "Scheduler": lambda url: Scheduler(url, "mail"),
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_redis_url_that_is_no_text_is_refused(taker: str) -> None:
    refused(lambda: TAKERS[taker](None), "redis_url is a str", "redis://", "got None")
    said = refused(lambda: TAKERS[taker](b"redis://:hunter22@host"), "got bytes")  # not a secret
    assert "hunter22" not in said


# -- names and credentials ---------------------------------------------------------------------


@pytest.mark.parametrize("option", ["group", "consumer_id"])
@pytest.mark.parametrize("given", [5, 1.5, b"a", ["a"], {"a": 1}, True], ids=repr)
def test_a_name_that_is_no_text_is_refused(option: str, given: Any) -> None:
    words = f"{option} is a str, got {type(given).__name__}"
    options: dict[str, Any] = {option: given}
    refused(lambda: Worker("mail", handle, **options), words)
    refused(lambda: Consumer("redis://127.0.0.1", "mail", **options), words)


def test_a_consumer_id_that_is_no_text_is_refused_when_it_is_adjusted() -> None:
    refused(lambda: Worker("mail", handle).adjust(consumer_id=5), "consumer_id is a str")  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["group", "consumer_id"])
def test_a_name_that_cannot_be_sent_is_refused(option: str) -> None:
    options: dict[str, Any] = {option: "a\ud800"}
    with pytest.raises(ConfigError, match=rf"{option} 'a\\ud800' is no valid text"):
        Worker("mail", handle, **options)


class Vault:
    def get_credentials(self) -> tuple[str, str]:
        return "user", "hunter22"  # not a secret


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (("user", "hunter22"), "got tuple"),
        (Vault(), "got Vault"),
        ("hunter22", "got str"),
        (lambda: ("user", "hunter22"), "<lambda> cannot be called with one argument"),
    ],
)
def test_a_credential_provider_that_cannot_be_asked_is_refused(provider: Any, words: str) -> None:
    options: dict[str, Any] = {"credential_provider": provider}
    for call in (
        lambda: Queue("mail", **options),
        lambda: sync.Queue("mail", **options),
        lambda: QueueEvents("mail", **options),
        lambda: Worker("mail", handle, **options),
    ):
        said = refused(call, "returns (username, password)", words)
        assert "hunter22" not in said


# -- handlers ----------------------------------------------------------------------------------


class Mailer:
    def __call__(self, job: Job) -> None: ...

    def send(self, job: Job, copy: bool = False) -> None: ...

    def two(self, job: Job, session: object) -> None: ...

    def none(self) -> None: ...

    @staticmethod
    def still(job: Job) -> None: ...

    @classmethod
    def of_class(cls, job: Job) -> None: ...


def two(job: Job, session: object, password: str = "hunter22") -> None: ...  # not a secret


def spread(*args: Any, **options: Any) -> None: ...


@functools.wraps(two)
def wrapped(job: Job) -> None: ...


def generator(job: Job) -> Any:
    yield job


async def async_generator(job: Job) -> Any:
    yield job


class Yields:
    def __call__(self, job: Job) -> Any:
        yield job


@pytest.mark.parametrize(
    "handler",
    [
        handle,
        Mailer(),
        Mailer().send,
        Mailer.still,
        Mailer.of_class,
        Mailer().of_class,
        spread,
        wrapped,
        lambda job: None,
        functools.partial(two, session=1),
        functools.partial(Mailer().two, session=1),
        print,
        [].append,
    ],
)
def test_whatever_can_be_called_with_a_job_is_a_handler(handler: Any) -> None:
    Worker("mail", handler)
    Worker("mail", {"send": handler, "other": Route(handler)})
    Router().on("send")(handler)


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (two, ("two(job, session, password=...)", "async def handle(job)")),
        (Mailer().two, ("two(job, session)",)),
        (Mailer().none, ("none()", "async def handle(job)")),
        (Mailer.send, ("send(self, job, copy=...)",)),
        (lambda: None, ("<lambda>()",)),
        (Mailer, ("the class Mailer", "an instance")),
        (generator, ("generator", "yield", "never run")),
        (async_generator, ("generator", "yield", "never run")),
        (functools.partial(generator), ("generator",)),
        (Yields(), ("generator",)),
        (None, ("must be a function, got NoneType",)),
        ("app:handle", ("must be a function, got str",)),
    ],
)
def test_what_cannot_be_called_with_a_job_is_refused_when_it_is_given(
    handler: Any, words: tuple[str, ...]
) -> None:
    refused(lambda: Worker("mail", handler), "the handler of the queue", *words)
    refused(lambda: Worker("mail", {"send": handler}), "the handler of 'send'", *words)
    refused(lambda: Worker("mail", Route(handler)), *words)
    refused(lambda: Router().on("send")(handler), "the handler of 'send'", *words)
    said = refused(lambda: Router().otherwise(handler), *words) if callable(handler) else ""
    assert "hunter22" not in said


@contextmanager
def called() -> Any:
    coroutine = handle(Job("id", "name", None))
    try:
        yield coroutine
    finally:
        coroutine.close()


def test_a_handler_that_was_called_is_refused() -> None:
    with called() as coroutine:
        refused(lambda: Worker("mail", coroutine), "coroutine", "pass handle", "not handle(...)")


def test_on_without_parentheses_is_refused_with_the_right_spelling() -> None:
    router = Router()
    refused(lambda: router.on(handle), '@router.on("handle")', "without parentheses")  # type: ignore[arg-type]
    refused(lambda: router.on(), '@router.on("welcome")', "@router.otherwise")
    assert router.routes == {}


def test_otherwise_with_parentheses_is_refused_with_the_right_spelling() -> None:
    router = Router()
    for call in (lambda: router.otherwise(), lambda: router.otherwise("other")):
        refused(call, "@router.otherwise", "without parentheses")  # type: ignore[arg-type]
    assert router.default is None


@pytest.mark.parametrize("given", [handle, "mail", 5, [handle], Worker("mail", handle)])
def test_a_router_refuses_what_is_no_mapping_and_no_router(given: Any) -> None:
    kind = type(given).__name__
    refused(lambda: Router(given), "a mapping of job names to handlers", f"got {kind}")
    refused(lambda: Router().include(given), f"takes a Router, got {kind}")


@pytest.mark.parametrize("given", [[Worker("mail", handle)], "mail", None])
def test_run_workers_refuses_what_is_no_worker(given: Any) -> None:
    async def run() -> None:
        await run_workers(given)

    kind = type(given).__name__
    refused(lambda: asyncio.run(run()), f"got {kind}", "run_workers(*workers)")


# -- names of options --------------------------------------------------------------------------

MISSPELT: dict[str, Callable[[], Any]] = {
    "did you mean 'delay_ms'": lambda: Queue("mail").add("n", None, dealy_ms=5),  # type: ignore[call-arg]
    "did you mean 'durability'": lambda: Queue("mail").add_bulk([], durabilty="local"),  # type: ignore[call-arg]
    "did you mean 'limit'": lambda: Queue("mail").get_repeatable_jobs(limt=5),  # type: ignore[call-arg]
    "did you mean 'format'": lambda: Queue("mail").import_dlq([], fromat="json"),  # type: ignore[call-arg]
    "did you mean 'after'": lambda: Queue("mail").next_fires("key", aftr=5),  # type: ignore[call-arg]
    "did you mean 'log_failures'": lambda: Worker("mail", handle, log_failure=False),  # type: ignore[call-arg]
    "did you mean 'time_limit_ms'": lambda: Router().on("n", time_limt_ms=5),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("hint", MISSPELT)
def test_a_misspelt_option_is_answered_with_the_nearest(hint: str) -> None:
    refused(MISSPELT[hint], hint)


@pytest.mark.parametrize("key", [5, None, ("a",), b"name"])
def test_a_key_that_is_no_word_is_answered_with_all_that_are_known(key: Any) -> None:
    refused(lambda: Worker("mail", handle, backoff={key: 2}), f"{key!r}; known: ", "delay_ms")
    job = {"name": "welcome", "data": None, key: 2}
    refused(lambda: asyncio.run(Queue("mail").add_bulk([job])), f"{key!r}; known: ", "job_id")


def test_the_ids_of_results_are_a_list() -> None:
    refused(lambda: asyncio.run(Queue("mail").get_job_result_bulk(5)), "a list of ids, got int")  # type: ignore[arg-type]
