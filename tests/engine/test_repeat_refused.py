"""What the doors refuse of a repeatable job: in the kinds that the reference raises, before anybody
connects if it can be told by then, and with nothing written in any case."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from chasquimq import (
    ArgumentError,
    ConfigError,
    EncodeError,
    Job,
    Queue,
    QueueFullError,
    RepeatPattern,
    StoreUnavailableError,
)
from chasquimq.config import MAX_MS
from chasquimq.native import Producer
from tests.engine.desk import Desk
from tests.shown import shown

NOWHERE = "redis://127.0.0.1:1"
EVERY = RepeatPattern.every(60_000)
CRON = {"kind": "cron", "expression": "0 9 * * *"}
Options = dict[str, Any]


def cron(expression: Any, tz: Any = None) -> Options:
    return {"repeat": {"kind": "cron", "expression": expression, "tz": tz}}


# -- a Queue ---------------------------------------------------------------------------------------

SPECS: list[tuple[Options, type[Exception], str]] = [  # without a pattern it is EVERY
    ({"repeat": 60_000}, TypeError, "repeat is a RepeatPattern or its dict form, got int"),
    ({"repeat": "@daily"}, TypeError, "repeat is a RepeatPattern or its dict form, got str"),
    ({"repeat": {}}, ValueError, "unknown pattern kind"),
    ({"repeat": {"kind": "every", "interval": 5}}, TypeError, "did you mean 'interval_ms'"),
    ({"repeat": RepeatPattern("every")}, ValueError, "needs 'interval_ms'"),
    (cron("61 * * * *"), ValueError, "'61 .*minutes.*61"),
    (cron("* * 32 * *"), ValueError, "day of month.*32"),
    (cron("* * * FOO *"), ValueError, "month.*FOO"),
    (cron("* * * * 8"), ValueError, "day of week.*8"),
    (cron("*/0 * * * *"), ValueError, "minutes.*0"),
    (cron("* * *"), ValueError, "fields"),
    (cron(""), ValueError, "cron expression ''"),
    (cron("0 0 30 2 *"), ValueError, "can never fire"),
    (cron("* " * 600), ValueError, "at most 1000 characters"),
    (cron("@daily", "Europe/Berlim"), ValueError, "Europe/Berlin"),
    (cron("@daily", "+25:00"), ValueError, r"\+25:00"),
    (cron("@daily", 5), TypeError, "tz is the name of a time zone"),
    (cron(5), TypeError, "a cron expression is a str, got int"),
    ({"limit": -1}, ValueError, "limit must be from 0"),
    ({"limit": MAX_MS + 1}, ValueError, "limit must be from 0"),
    ({"limit": 1.5}, TypeError, "limit is a whole number, got 1.5"),
    ({"limit": True}, TypeError, "limit is a whole number, got True"),
    ({"limit": "3"}, TypeError, "limit is a whole number, got '3'"),
    ({"start_after": -1}, ValueError, "start_after must be a moment since 1970, got -1"),
    ({"end_before": MAX_MS}, ValueError, "end_before must be a moment since 1970"),
    ({"start_after": datetime(1969, 1, 1, tzinfo=UTC)}, ValueError, "since 1970, got 1969-01-01"),
    ({"start_after": 1.5e12}, TypeError, "start_after is epoch ms or a datetime, got float"),
    ({"start_after": True}, TypeError, "start_after is epoch ms or a datetime, got bool"),
    ({"end_before": "2030-01-01"}, TypeError, "end_before is epoch ms or a datetime, got str"),
    ({"end_before": date(2999, 1, 1)}, TypeError, "epoch ms or a datetime, got date"),
    ({"start_after": timedelta(1)}, TypeError, "epoch ms or a datetime, got timedelta"),
    ({"missed_fires": "skip"}, TypeError, "missed_fires is a MissedFiresPolicy or its dict form"),
    ({"missed_fires": {"kind": "fire_all"}}, ValueError, "did you mean 'fire-all'"),
    ({"missed_fires": {"kind": "fire-all"}}, ValueError, "needs 'max_catchup'"),
    ({"missed_fires": {"kind": "fire-all", "max_catchup": 0}}, ValueError, "must be from 1"),
    ({"attempts": -1}, ValueError, "attempts must be a whole number"),
    ({"backoff": "soon"}, TypeError, "backoff is a whole number of ms"),
    ({"name": "a\x00b"}, ValueError, "control characters"),
    ({"name": "a\nb"}, ValueError, "control characters"),
    ({"name": "n" * 257}, ValueError, "257 bytes, limit is 256"),
    ({"name": 0}, ValueError, "a job name is a str, got int"),
    ({"name": b"n"}, ValueError, "a job name is a str, got bytes"),
    ({"data": object()}, RuntimeError, "CMQ-002.*object"),
    ({"data": b"x" * 2**20}, RuntimeError, "CMQ-023.*limit is 1048576"),
    (
        {"name": "n" * 50, **cron("0 0 " + "1," * 480 + "1 * *")},
        ValueError,
        "at most 990 bytes, got .*upsert_repeatable_job takes a shorter one as key=",
    ),
]


def call(options: Options) -> tuple[Any, Any, Options]:
    options = {"repeat": EVERY, **options}
    return options.pop("name", "n"), options.pop("data", 1), options


@pytest.mark.parametrize(("options", "kind", "words"), SPECS, ids=shown)
async def test_a_spec_that_makes_no_sense_is_refused_before_anybody_connects(
    options: Options, kind: type[Exception], words: str
) -> None:
    name, data, rest = call(options)
    queue = Queue("q", redis_url=NOWHERE)
    bulk = [{"data": 1}, {"name": name, "data": data, **rest}]
    for refused in (
        lambda: queue.add(name, data, **rest),
        lambda: queue.upsert_repeatable_job(name, data, **rest),
        lambda: queue.add_bulk(bulk),
    ):
        with pytest.raises(kind, match=words) as caught:
            await refused()
        assert isinstance(caught.value, ConfigError | EncodeError)
        assert isinstance(caught.value, ArgumentError) == (kind is TypeError)
    assert caught.value.__notes__ == ["job 1 of the bulk; nothing was sent"]


@pytest.mark.parametrize("option", ["delay_ms", "delay", "unique", "unique_for", "durability"])
async def test_what_no_spec_has_is_refused_beside_repeat(option: str) -> None:
    queue, given = Queue("q", redis_url=NOWHERE), {option: "until_done"}
    words = f"{option} does not go with repeat="
    with pytest.raises(ConfigError, match=words):
        await queue.add("n", 1, repeat=EVERY, **given)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=words):
        await queue.add_unique("n", 1, job_id="i", repeat=EVERY, **given)  # type: ignore[arg-type]
    durable = {option: given.pop(option)} if option == "durability" else {}
    with pytest.raises(ConfigError, match=words):
        await queue.add_bulk([{"data": 1, "repeat": EVERY, **given}], **durable)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["missed_fires", "limit", "start_after", "end_before"])
async def test_what_only_a_spec_has_is_refused_without_repeat(option: str) -> None:
    with pytest.raises(ConfigError, match="go with repeat="):
        await Queue("q", redis_url=NOWHERE).add("n", 1, **{option: 5})  # type: ignore[arg-type]


UNKNOWN: list[tuple[Callable[[Queue], Any], str]] = [
    (lambda q: q.add("n", 1, repeat=EVERY, limt=1), "Queue.add has no option 'limt'; .*'limit'"),
    (lambda q: q.add("n", 1, repeat=EVERY, start_afer=1), "did you mean 'start_after'"),
    (
        lambda q: q.upsert_repeatable_job("n", 1, repeat=EVERY, end_befor=1),
        "upsert_repeatable_job has no option 'end_befor'; did you mean 'end_before",
    ),
    (lambda q: q.add_bulk([{"data": 1, "repeat": EVERY, "limt": 1}]), "did you mean 'limit'"),
    (lambda q: q.add_bulk([{"data": 1, "repaet": EVERY}]), "did you mean 'repeat'"),
]


@pytest.mark.parametrize(("ask", "words"), UNKNOWN, ids=[words for _, words in UNKNOWN])
async def test_an_unknown_option_is_answered_with_the_nearest(ask: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        await ask(Queue("q", redis_url=NOWHERE))


@pytest.mark.parametrize("name", ["start_after", "end_before"])
async def test_one_moment_has_two_names_and_only_one_may_be_given(name: str) -> None:
    both = {name: 5, f"{name}_ms": 5}
    queue = Queue("q", redis_url=NOWHERE)
    with pytest.raises(ConfigError, match=f"give {name} or {name}_ms, not both"):
        await queue.upsert_repeatable_job("n", 1, repeat=EVERY, **both)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="not both"):
        await queue.add_bulk([{"data": 1, "repeat": EVERY, **both}])


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        ("k" * 991, ConfigError, "at most 990 bytes, got 991"),
        ("ñ" * 496, ConfigError, "at most 990 bytes, got 992"),
        ("\ud800", ConfigError, "no valid text"),
        (5, ArgumentError, "the key of a spec is a str, got int"),
        (0, ArgumentError, "the key of a spec is a str, got int"),
        (b"k", ArgumentError, "the key of a spec is a str, got bytes"),
    ],
    ids=shown,
)
async def test_a_key_that_cannot_be_is_refused(key: Any, kind: type[Exception], words: str) -> None:
    queue = Queue("q", redis_url=NOWHERE)
    with pytest.raises(kind, match=words):
        await queue.upsert_repeatable_job("n", 1, repeat=EVERY, key=key)
    if isinstance(key, str) and len(key) > 1:
        return  # one that is there already may have any length
    for ask in (
        *(queue.remove_repeatable_by_key, queue.pause_repeatable, queue.resume_repeatable),
        queue.run_repeatable_now,
    ):
        with pytest.raises(kind, match=words):
            await ask(key)


async def test_what_makes_sense_is_asked_of_the_server() -> None:
    """Or all of the above would prove nothing."""
    queue = Queue("q", redis_url=NOWHERE)
    for ask in (
        lambda: queue.add("n", 1, repeat=EVERY),
        lambda: queue.add_bulk([{"data": 1, "repeat": EVERY}]),
        lambda: queue.remove_repeatable_by_key("k" * 5_000),
    ):
        with pytest.raises(StoreUnavailableError):
            await ask()


# -- what only the server's clock can tell ---------------------------------------------------------

OVER = {"kind": "cron", "expression": "0 0 0 1 1 * 2020"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repeat": OVER}, "would never fire: its years are over"),
        ({"end_before": 1_000}, r"end_before_ms \(1000\) of spec .* is before its first fire \("),
        ({"start_after": 2**50, "end_before": 2**50 + 59_999}, "is before its first fire"),
        ({"repeat": RepeatPattern.every(MAX_MS)}, "would never fire"),
    ],
    ids=shown,
)
async def test_a_spec_that_would_never_fire_is_refused_and_nothing_is_written(
    desk: Desk, options: Options, words: str
) -> None:
    name, data, rest = call(options)
    async with desk.queue() as queue:
        with pytest.raises(ConfigError, match=words):
            await queue.add(name, data, **rest)
        with pytest.raises(ConfigError, match=words) as caught:
            await queue.add_bulk([{"data": 1}, {"name": name, "data": data, **rest}])
    said = "job 1 of the bulk; specs before it are written, no job is"
    assert caught.value.__notes__ == [said]
    assert not desk.redis.keys(desk.keys.tag + b"*")


# -- a bulk ----------------------------------------------------------------------------------------


async def test_a_bulk_may_hold_jobs_and_specs_and_answers_in_order(desk: Desk) -> None:
    async with desk.queue() as queue:
        jobs = await queue.add_bulk(
            [
                {"name": "a", "data": 1},
                {"name": "b", "data": 2, "repeat": CRON, "limit": 3, "attempts": 4},
                {"data": 3, "repeat": None, "job_id": "three"},
                {"data": 4, "repeat": EVERY, "key": "own", "start_after_ms": 5},
                {"name": "e", "data": 5, "delay_ms": 60_000, "job_id": "five"},
            ]
        )
        assert [(job.name, job.data) for job in jobs] == [
            *(("a", 1), ("b", 2), ("", 3), ("", 4), ("e", 5))
        ]
        ids = [job.id for job in jobs]
        assert ids[1:] == ["b::cron:0 9 * * *:UTC", "three", "own", "five"]
        metas = {meta.key: meta for meta in await queue.get_repeatable_jobs()}
    assert (metas[ids[1]].limit, metas[ids[1]].attempts) == (3, 4)
    assert metas["own"].start_after_ms == 5
    assert [envelope.id for envelope in desk.envelopes()] == [ids[0], "three"]
    assert desk.delayed() == 1


async def test_in_a_bulk_that_was_not_accepted_whole_every_job_has_its_place(desk: Desk) -> None:
    async with desk.queue(max_stream_len=1) as queue:
        with pytest.raises(QueueFullError) as caught:
            await queue.add_bulk(
                [{"data": 1}, {"name": "s", "data": 2, "repeat": EVERY}, {"data": 3}]
            )
    outcomes = caught.value.outcomes
    assert [type(outcome) for outcome in outcomes] == [QueueFullError, Job, QueueFullError]
    assert outcomes[1].id == "s::every:60000"
    assert desk.redis.zcard(desk.keys.repeat) == 1


@pytest.mark.parametrize("bad", [{"data": 1, "delay_ms": -1}, {"name": "n"}, {"nmae": "n"}])
async def test_a_bulk_with_a_job_that_cannot_be_writes_no_spec(desk: Desk, bad: Options) -> None:
    good = {"data": 1, "repeat": EVERY}
    async with desk.queue() as queue:
        for bulk in ([good, bad], [good, {**bad, "repeat": EVERY}]):
            with pytest.raises(ConfigError) as caught:
                await queue.add_bulk(bulk)
            assert caught.value.__notes__ == ["job 1 of the bulk; nothing was sent"]
    assert not desk.redis.keys(desk.keys.tag + b"*")


# -- a Producer ------------------------------------------------------------------------------------

BASE = {"job_name": "n", "pattern": {"kind": "every", "interval_ms": 60_000}, "payload": b"x"}
NATIVE: list[tuple[Any, type[Exception], str]] = [  # with the kinds that the reference raises
    (None, TypeError, "spec is a dict, got NoneType"),
    ([], TypeError, "spec is a dict, got list"),
    *[
        ({k: v for k, v in BASE.items() if k != name}, ValueError, f"a spec needs '{name}'")
        for name in BASE
    ],
    ({**BASE, "paylod": b"x"}, ValueError, "spec has no option 'paylod'; did you mean 'payload'"),
    ({**BASE, "zzz": 1}, ValueError, "spec has no option 'zzz'; known: end_before_ms"),
    ({**BASE, "job_name": 5}, ValueError, "a job name is a str, got int"),
    ({**BASE, "payload": "x"}, ValueError, "a payload is bytes, got str"),
    ({**BASE, "payload": None}, ValueError, "a payload is bytes, got NoneType"),
    ({**BASE, "payload": b"x" * 2**20}, RuntimeError, "limit is 1048576"),
    ({**BASE, "pattern": None}, ValueError, "its dict form, got NoneType"),
    ({**BASE, "pattern": {}}, ValueError, "unknown pattern kind"),
    ({**BASE, "pattern": {"kind": "every", "interval_ms": 0}}, ValueError, "interval_ms must be"),
    ({**BASE, "pattern": {"kind": "cron"}}, ValueError, "needs 'expression'"),
    ({**BASE, "pattern": {"kind": "cron", "expression": "bad"}}, RuntimeError, "'bad'"),
    ({**BASE, "key": 5}, ValueError, "the key of a spec is a str"),
    ({**BASE, "limit": -1}, ValueError, "limit must be from 0"),
    ({**BASE, "limit": "5"}, ValueError, "limit is a whole number"),
    ({**BASE, "start_after_ms": 1.5}, ValueError, "start_after is epoch ms or a datetime"),
    ({**BASE, "end_before_ms": -1}, ValueError, "end_before must be a moment"),
    ({**BASE, "missed_fires": {}}, ValueError, "unknown missed_fires kind"),
    ({**BASE, "missed_fires": "skip"}, ValueError, "its dict form, got str"),
    ({**BASE, "retry": 5}, ValueError, "retry is a dict, got int"),
    ({**BASE, "retry": {"attempts": 5}}, ValueError, "did you mean 'max_attempts'"),
]


@pytest.mark.parametrize(("spec", "kind", "words"), NATIVE, ids=[words for _, _, words in NATIVE])
async def test_a_producer_refuses_what_makes_no_sense(
    spec: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        await Producer(NOWHERE, "q").upsert_repeatable(spec)
