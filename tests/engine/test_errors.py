"""What people meet when something is wrong: a code, the cause, the fix, and never a secret."""

from __future__ import annotations

from typing import Any

import pytest

from chasquimq import (
    AccessError,
    ArgumentError,
    ConfigError,
    EncodeError,
    Job,
    NameTooLongError,
    PayloadTooLargeError,
    Queue,
    StoreUnavailableError,
    Worker,
)
from tests.engine.desk import Desk, eventually

SECRET = "hunter2hunter2"  # not a secret


async def nothing(job: Job) -> None:
    pass


ADDS: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("n" * 257, 1), {}, NameTooLongError, r"CMQ-004: job name is 257 bytes, limit is 256"),
    (("a\x00b", 1), {}, ConfigError, r"CMQ-004.*control"),
    ((0, 1), {}, ConfigError, r"CMQ-004.*name"),
    ((False, 1), {"delay_ms": 5}, ConfigError, r"CMQ-004.*name"),
    (("n", b"x" * 1_048_576), {}, PayloadTooLargeError, r"CMQ-023.*limit is 1048576.*reference"),
    (("n", object()), {}, EncodeError, r"CMQ-002.*object"),
    (
        ("n", 1),
        {"delay_ms": -1},
        ConfigError,
        r"CMQ-004: delay_ms must be finite non-negative, got -1 ms",
    ),
    (("n", 1), {"delay_ms": True}, ArgumentError, r"CMQ-004.*bool"),
    (("n", 1), {"delay_ms": "soon"}, ArgumentError, r"CMQ-004.*number of ms.*str"),
    (("n", 1), {"delay_ms": 31 * 86_400_000}, ConfigError, r"CMQ-004.*max_delay_secs"),
    (("n", 1), {"delay_ms": 1, "delay": 1}, ConfigError, r"CMQ-004.*not both"),
    (("n", 1), {"job_id": "  "}, ConfigError, r"CMQ-004.*blank"),
    (("n", 1), {"job_id": "i" * 1025}, ConfigError, r"CMQ-004.*1024"),
    (("n", 1), {"attempts": -1}, ConfigError, r"CMQ-004.*attempts"),
    (("n", 1), {"backoff": "x"}, ArgumentError, r"CMQ-004.*backoff"),
    (("n", 1), {"backoff": {"kind": "fixed", "dealy_ms": 1}}, ArgumentError, r"'delay_ms'\?"),
    (("n", 1), {"atempts": 1}, ArgumentError, r"CMQ-004.*'atempts'; did you mean 'attempts'\?"),
    (("n", 1), {"repeat": object()}, ArgumentError, r"CMQ-004.*repeat is a RepeatPattern"),
    (("n", 1), {"repeat": {"kind": "cron", "expression": "61 * * * *"}}, ConfigError, r"minutes"),
    (("n", 1), {"missed_fires": {"kind": "skip"}}, ConfigError, r"CMQ-004.*go with repeat="),
]


@pytest.mark.parametrize(("args", "options", "kind", "words"), ADDS)
async def test_a_wrong_add_says_what_is_wrong_and_sends_nothing(
    desk: Desk, args: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    async with desk.queue() as queue:
        with pytest.raises(kind, match=words) as caught:
            await queue.add(*args, **options)
    assert isinstance(caught.value, RuntimeError)  # what code for the released program catches
    assert not desk.redis.exists(desk.keys.stream, desk.keys.delayed, desk.keys.repeat)


@pytest.mark.parametrize("name", ["", "a{b", "a}b", "a\nb", "\x7f"])
def test_names_that_break_keys_are_refused_at_both_doors(name: str) -> None:
    for door in (lambda: Queue(name), lambda: Worker(name, nothing)):
        with pytest.raises(ConfigError, match="CMQ-004"):
            door()


OPTIONS = [
    ({"concurency": 5}, "did you mean 'concurrency'"),
    ({"concurrency": -1}, "concurrency must be at least 1, got -1"),
    ({"max_attempts": 0}, "max_attempts must be from 1"),
    ({"claim_min_idle_ms": 0}, "must be at least 1"),
    ({"dlq_on_full": "drop"}, "one of warn, trim"),
    ({"redis_url": "http://x"}, "must start with redis://"),
    ({"redis_url": f"redis://:{SECRET}@h?db=1"}, r"redis://\*\*\*@h"),
]


@pytest.mark.parametrize(("options", "words"), OPTIONS)
def test_a_wrong_option_is_refused_when_it_is_set(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        Worker("q", nothing, **options)
    assert SECRET not in str(caught.value)


async def test_a_wrong_port_is_told_at_once_by_both_doors() -> None:
    url = f"redis://user:{SECRET}@127.0.0.1:1"  # not a secret
    for run in (
        lambda: Queue("q", redis_url=url).add("n", 1),
        Worker("q", nothing, redis_url=url).run,
    ):
        with pytest.raises(StoreUnavailableError, match=r"CMQ-001.*127\.0\.0\.1:1") as caught:
            await run()
        assert SECRET not in str(caught.value)


async def test_a_wrong_password_is_told_at_once_by_both_doors(own_desk: Desk) -> None:
    own_desk.redis.execute_command("ACL", "SETUSER", "ada", "on", f">{SECRET}", "~*", "&*", "+@all")
    wrong = own_desk.server.url.replace("redis://", "redis://ada:mistaken@")  # not a secret
    for run in (
        lambda: own_desk.queue(redis_url=wrong).add("n", 1),
        own_desk.worker(nothing, redis_url=wrong).run,
    ):
        with pytest.raises(AccessError, match=r"CMQ-001.*WRONGPASS") as caught:
            await run()
        assert "mistaken" not in str(caught.value)
    right = own_desk.server.url.replace("redis://", f"redis://ada:{SECRET}@")
    queue = own_desk.queue(redis_url=right)
    await queue.add("n", 1)
    assert SECRET not in repr(queue)
    await queue.close()


async def test_what_a_credential_provider_says_never_reaches_the_log(
    own_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease's connection is the fourth: from then on the provider breaks."""
    asked = 0

    def provider(host: str | None) -> tuple[str | None, str | None]:
        nonlocal asked
        asked += 1
        if asked > 3:
            raise ValueError(f"cannot refresh {SECRET}")
        return None, None

    options = {"delayed_enabled": False, "run_scheduler": False}  # no connection for wake-ups
    async with own_desk.working(nothing, credential_provider=provider, **options):
        await eventually(lambda: "renewing leases failed" in caplog.text)
    assert "ValueError" in caplog.text
    assert SECRET not in caplog.text


async def test_a_dialect_that_is_none_is_refused(desk: Desk) -> None:
    where: Any = {"redis_url": desk.server.url, "dialect": "redis"}
    for door in (Queue(desk.name, **where), Worker(desk.name, nothing, burst=True, **where)):
        with pytest.raises(ConfigError, match="dialect must be one of native, portable; got 'red"):
            await (door.add("n", 1) if isinstance(door, Queue) else door.run())
