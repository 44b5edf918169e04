"""A spec that cannot be read or fired is put aside: it is kept as it is, said to whoever should
know, and none of the others feels it."""

from __future__ import annotations

import logging

import msgspec
import pytest

from chasquimq import ConfigError, Job, RepeatableMeta, RepeatPattern, wire
from chasquimq.errors import StoreError, WireError
from chasquimq.observe.memory import InMemorySink, WorkerRollup
from chasquimq.observe.metrics import listening
from chasquimq.repeat import PAUSED_MS
from tests.engine.desk import Desk, eventually
from tests.engine.roster import HOUR_MS, fires, lay, now_ms, packed, scheduling
from tests.shown import shown

BIN = b"\xc4\x01\xc0"  # what a payload holds: a bin, and in it the data
EVERY = {"Every": [1_000]}


def slots(pattern: object = EVERY, payload: object = BIN, more: tuple[object, ...] = ()) -> bytes:
    """A spec of eight elements and more, some of which no program of ours would write."""
    row = ("key", "n", pattern, payload, None, None, None, 0, *more)
    return msgspec.msgpack.encode(row)


def cron(expression: str, tz: str | None = None) -> bytes:
    return slots({"Cron": [expression, tz]})


UNREADABLE = [  # bytes, and words of the problem
    (b"\xc1", "not a repeatable spec"),
    (b"", "not a repeatable spec"),
    (packed()[:-3], "not a repeatable spec"),
    (slots(more=("Skip", None, 1)), "11 elements"),
    (slots({"Weekly": [1]}), "Weekly"),
    (slots({"\x1b[2J": [1]}), r"\x1b[2J"),
    (slots({"Every": [-1]}), "integer"),
    (slots(payload=7), "bytes belong"),
    (slots(payload=b"\x07"), "bytes belong"),
    (slots(more=("Sometimes",)), "Sometimes"),
]
UNFIREABLE = [
    (slots({"Every": [0]}), "no pattern that could fire"),
    (cron("0 0 LW * *"), "LW"),
    (cron("0 0 30 2 *"), "can never fire"),
    (cron("* * * * * * * *"), "8 fields"),
    (cron("\x1b[31m * * * *"), r"\x1b[31m"),
    (cron("0 9 * * *", "Mars/Olympus\n\x07"), r"Mars/Olympus\n\x07"),
    (cron("0 9 * * *", "../../etc/passwd"), "unknown time zone"),
]
NO_MOMENTS = ["-inf", "-1", "-1700000000000.5"]


async def listed(desk: Desk, key: str = "key") -> RepeatableMeta:
    async with desk.queue() as queue:
        [meta] = [meta for meta in await queue.get_repeatable_jobs() if meta.key == key]
        return meta


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno >= logging.ERROR]


async def run_out(desk: Desk, sink: InMemorySink, **options: int) -> int:
    """Tick until nothing is due; answers how many ticks it took."""
    async with scheduling(desk, listening(sink), **options) as scheduler:
        ticks = 1
        while await scheduler.tick() == 0.0:
            ticks += 1
        assert await scheduler.tick() > 0.0  # and not again
        return ticks


async def put_aside(desk: Desk, caplog: pytest.LogCaptureFixture, key: str = "key") -> str:
    """See the due spec put aside in front of a good one; answers the problem, as all tell it."""
    sink, now = InMemorySink(), now_ms(desk)
    lay(desk, "good", now)
    await run_out(desk, sink)
    assert fires(desk) == [("good", now)]
    [(said, problem)] = sink.heard("spec_put_aside")
    assert said == key
    assert problem.isprintable()
    assert sink.rollup().worker == WorkerRollup(fired=1, put_aside=1)
    [line] = errors(caplog)
    assert line == f"spec {key!r} cannot be fired and was put aside: {problem}"
    assert all(0 <= tick.lag_ms < HOUR_MS for tick in sink.heard("scheduler_tick"))
    return str(problem)


# -- what cannot be fired --------------------------------------------------------------------------


async def kept(
    desk: Desk, caplog: pytest.LogCaptureFixture, body: bytes, words: str
) -> RepeatableMeta:
    """The bad one lies there with its bytes, and says what is wrong with it in these words."""
    stood = now_ms(desk) - 10
    lay(desk, "key", stood, body)
    problem = await put_aside(desk, caplog)
    assert words in problem
    assert desk.redis.hget(desk.keys.spec("key"), "spec") == body  # type: ignore[arg-type]
    meta = await listed(desk)
    assert (meta.problem, meta.paused, meta.next_fire_ms) == (problem, False, stood)
    return meta


@pytest.mark.parametrize(("body", "words"), UNREADABLE, ids=shown)
async def test_a_spec_that_cannot_be_read_is_kept_and_the_others_fire(
    desk: Desk, caplog: pytest.LogCaptureFixture, body: bytes, words: str
) -> None:
    meta = await kept(desk, caplog, body, words)
    assert meta.pattern == RepeatPattern("unreadable")


@pytest.mark.parametrize(("body", "words"), UNFIREABLE, ids=shown)
async def test_a_spec_that_cannot_be_fired_is_kept_and_the_others_fire(
    desk: Desk, caplog: pytest.LogCaptureFixture, body: bytes, words: str
) -> None:
    meta = await kept(desk, caplog, body, words)
    assert (meta.job_name, meta.pattern) == ("n", wire.unpack_spec(body).pattern)
    async with desk.queue() as queue:
        with pytest.raises(ConfigError):  # nothing has changed
            await queue.resume_repeatable("key")


@pytest.mark.parametrize("score", NO_MOMENTS)
async def test_a_score_that_is_no_moment_is_put_aside_and_resumed_from_now_on(
    desk: Desk, caplog: pytest.LogCaptureFixture, score: str
) -> None:
    lay(desk, "key", score)
    assert score[:5] in await put_aside(desk, caplog)
    async with desk.queue() as queue:
        assert await queue.resume_repeatable("key")
    meta = await listed(desk)
    assert (meta.problem, meta.paused) == (None, False)
    assert 0 < meta.next_fire_ms - now_ms(desk) <= HOUR_MS


@pytest.mark.parametrize("part", ["0.5", "0.999"])
async def test_a_score_between_two_milliseconds_fires_as_the_earlier(desk: Desk, part: str) -> None:
    now = now_ms(desk)
    lay(desk, "key", f"{now - 1}{part[1:]}")
    await run_out(desk, InMemorySink())
    assert fires(desk) == [("key", now - 1)]
    assert (await listed(desk)).next_fire_ms == now - 1 + HOUR_MS


@pytest.mark.parametrize("kind", ["string", "list"])
async def test_what_is_no_hash_is_put_aside_and_stays(
    desk: Desk, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    place = desk.keys.spec("key")
    if kind == "string":
        desk.redis.set(place, "mine")
    else:
        desk.redis.rpush(place, "mine")
    desk.redis.zadd(desk.keys.repeat, {"key": now_ms(desk) - 10})
    problem = await put_aside(desk, caplog)
    assert desk.redis.type(place) == kind.encode()
    meta = await listed(desk)
    assert (meta.problem, meta.pattern.kind) == (problem, "unreadable")
    async with desk.queue() as queue:
        with pytest.raises(StoreError, match="WRONGTYPE"):  # it may be somebody's
            await queue.upsert_repeatable_job("n", 1, repeat=RepeatPattern.every(9), key="key")
        assert await queue.remove_repeatable_by_key("key")
    assert not desk.redis.exists(place)


async def test_a_key_that_is_no_text_is_put_aside(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    lay(desk, b"k\xff\x1b", now_ms(desk) - 10, packed("k"))
    problem = await put_aside(desk, caplog, "k\\xff\x1b")
    assert "\x1b" not in caplog.text
    async with desk.queue() as queue:
        [_, last] = await queue.get_repeatable_jobs()
        assert last.problem == problem
    assert desk.redis.hget(desk.keys.spec(b"k\xff\x1b"), "spec") == packed("k")  # type: ignore[arg-type]


async def test_a_key_with_control_characters_fires_and_is_logged_escaped(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    key = "\x1b[31m\r\nb\u202e"
    lay(desk, key, now_ms(desk) - 10, slots({"Every": [0]}))
    await put_aside(desk, caplog, key)
    assert not set(key) & set(caplog.text) - set("[31mb\n")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ZeroDivisionError("a defect"), "ZeroDivisionError('a defect')"),
        (WireError("two\nlines, \x1b[31mred " + "x" * 1_000), "two lines,  [31mred " + "x" * 280),
    ],
    ids=["defect", "unread"],
)
async def test_whatever_reading_one_raises_is_its_own_affair(
    desk: Desk,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    problem: str,
) -> None:
    """Else one spec would take down every worker in turn."""

    def raises(data: bytes, retry: bytes | None) -> object:
        if b"broken" in data:
            raise error
        return unpack_spec(data, retry)

    unpack_spec = wire.unpack_spec
    monkeypatch.setattr(wire, "unpack_spec", raises)
    lay(desk, "key", now_ms(desk) - 10, packed("broken"))
    assert await put_aside(desk, caplog) == problem
    # For whoever has to mend it: what is wrong with a spec needs none.
    assert ("Traceback" in caplog.text) == isinstance(error, ZeroDivisionError)


# -- mended ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "meanwhile"),
    [
        (b"\xc1", None),
        (slots({"Every": [0]}), None),
        (b"\xc1", packed("key", RepeatPattern.every(20))),  # somebody mended the bytes alone
    ],
    ids=shown,
)
async def test_writing_it_anew_mends_it(desk: Desk, body: bytes, meanwhile: bytes | None) -> None:
    ran: list[Job] = []

    async def handler(job: Job) -> None:
        ran.append(job)

    lay(desk, "key", now_ms(desk) - 10, body)
    async with desk.queue() as queue, desk.working(handler):
        await eventually(lambda: desk.redis.zscore(desk.keys.repeat, "key") == PAUSED_MS)
        if meanwhile is not None:
            desk.redis.hset(desk.keys.spec("key"), "spec", meanwhile)  # type: ignore[arg-type]
        every = RepeatPattern.every(20)
        await queue.upsert_repeatable_job("mended", 5, repeat=every, key="key")
        await eventually(lambda: len(ran) >= 3)
        meta = await listed(desk)
        assert (meta.problem, meta.paused, meta.job_name) == (None, False, "mended")
        await queue.remove_repeatable_by_key("key")
    assert {(job.name, job.data) for job in ran} == {("mended", 5)}


async def test_resuming_it_once_the_cause_is_gone_makes_it_fire_in_its_cadence(desk: Desk) -> None:
    ran: list[str] = []

    async def handler(job: Job) -> None:
        ran.append(job.id)

    stood = now_ms(desk) - 10
    lay(desk, "key", stood, slots({"Every": [0]}))
    place = desk.keys.spec("key")
    async with desk.queue() as queue, desk.working(handler):
        await eventually(lambda: desk.redis.zscore(desk.keys.repeat, "key") == PAUSED_MS)
        desk.redis.hset(place, "spec", packed("key", RepeatPattern.every(50)))  # type: ignore[arg-type]
        assert (await listed(desk)).problem  # until somebody says so
        assert await queue.resume_repeatable("key")
        await eventually(lambda: len(ran) >= 3)
        assert (await listed(desk)).problem is None
        assert await queue.remove_repeatable_by_key("key")
    windows = [int(job_id.removeprefix("key@")) for job_id in ran]
    assert windows == [windows[0] + 50 * n for n in range(len(windows))]
    assert (windows[0] - stood) % 50 == 0


# -- many ------------------------------------------------------------------------------------------


async def test_more_broken_specs_than_a_batch_do_not_starve_a_good_one(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    now, sink = now_ms(desk), InMemorySink()
    for number in range(300):
        lay(desk, f"bad-{number}", number, b"\xc1")
    lay(desk, "good", now)
    assert await run_out(desk, sink) == 2
    assert fires(desk) == [("good", now)]
    assert len(errors(caplog)) == len(sink.heard("spec_put_aside")) == 300
    assert {tick.lag_ms >= 0 for tick in sink.heard("scheduler_tick")} == {True}
    async with desk.queue() as queue:
        metas = await queue.get_repeatable_jobs(1_000)
    assert [meta.problem is None for meta in metas] == [True] + [False] * 300


async def test_keys_without_a_spec_are_removed_and_do_not_starve_a_good_one(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    now, sink = now_ms(desk), InMemorySink()
    desk.redis.zadd(desk.keys.repeat, {f"gone-{number}": number for number in range(300)})
    desk.redis.hset(desk.keys.spec("gone-7"), "fired", 5)  # type: ignore[arg-type]
    lay(desk, "good", now)
    assert await run_out(desk, sink) == 2
    assert fires(desk) == [("good", now)]
    assert desk.redis.zrange(desk.keys.repeat, 0, -1) == [b"good"]
    assert not desk.redis.exists(desk.keys.spec("gone-7"))
    assert sink.heard("spec_put_aside") == errors(caplog) == []
    assert "256 keys without a spec were removed" in caplog.messages
    assert "44 keys without a spec were removed" in caplog.messages
