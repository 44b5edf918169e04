"""What Prometheus is shown: the names it is promised, the figures that are true."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics

from chasquimq import Job, UnrecoverableError
from chasquimq import happening as it
from chasquimq.address import read_url
from chasquimq.errors import ConfigError
from chasquimq.health import Health
from chasquimq.observe.endpoint import serve
from chasquimq.observe.metrics import MAX_NAMES, OTHER, JobOutcome, LockOutcome, listening
from chasquimq.observe.probe import Depths, Probe, Target
from chasquimq.observe.prometheus import PrometheusSink, exposition, families
from chasquimq.observe.record import Recorder, Snapshot, merged
from chasquimq.store import Dialer
from tests.engine.desk import Desk, eventually
from tests.observe.kit import Samples

PAGE = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
REFERENCE = {  # the reference's names, and its labels besides `queue`
    "chasquimq_promoter_promoted_total": set(),
    "chasquimq_promoter_lock_acquired_total": {"role"},
    "chasquimq_promoter_lock_lost_total": {"role"},
    "chasquimq_consumer_reclaimed_total": set(),
    "chasquimq_jobs_completed_total": {"name"},
    "chasquimq_jobs_failed_total": {"kind", "name"},
    "chasquimq_retries_scheduled_total": {"name"},
    "chasquimq_dlq_routed_total": {"reason", "name"},
    "chasquimq_delayed_zset_depth": set(),
    "chasquimq_promoter_oldest_pending_lag_ms": set(),
    "chasquimq_consumer_batch_size_bucket": {"le"},
    "chasquimq_handler_duration_seconds_bucket": {"name", "le"},
    "chasquimq_retry_backoff_seconds_bucket": {"le"},
}


def page(*recorders: Recorder, queues: tuple[Depths, ...] = ()) -> Samples:
    snapshot = merged([recorder.snapshot() for recorder in recorders])
    return Samples(exposition(snapshot, queues)[1])


def recorded(*happenings: it.Happening, queue: str = "q") -> Recorder:
    recorder = Recorder(queue)
    hear = listening(recorder)
    for happening in happenings:
        hear(happening)
    return recorder


EVERYTHING = (
    it.Completed("1", "a", 1, 20),
    it.Failed("1", "a", 1, 20, "no"),
    it.RetryScheduled("1", "a", 2, 250),
    it.Added("1", "a"),
    it.LockTurned("promoter", True),
    it.LockTurned("scheduler", True),
    it.Ticked(1, 2, 3),
    it.SpecsTicked(1, 2, 3),
    it.Reconnected("reader"),
    it.Pulsed("c", Health(state="running")),
)


# -- names -----------------------------------------------------------------------------------------


def test_the_names_and_labels_of_the_reference_are_kept() -> None:
    samples = page(recorded(*EVERYTHING))
    for name, labels in REFERENCE.items():
        assert samples.labels(name) == labels | {"queue"}, name


def test_the_reference_page_lists_every_metric_with_its_type_and_labels() -> None:
    section = PAGE.partition("\n## Prometheus\n")[2]
    listed = {
        name: (kind, {label.strip() for label in labels.split(",") if label.strip()})
        for name, kind, labels in re.findall(
            r"^\| `(chasquimq_\w+)` \| (\w+) \| ([^|]*)\|", section, re.MULTILINE
        )
    }
    real = {}
    for family in families(Snapshot(), ()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        real[name] = (family.type, set(family._labelnames) - {"queue"})  # type: ignore[attr-defined]
        assert family._labelnames[0] == "queue"  # type: ignore[attr-defined]
        assert family.documentation.endswith(".")
    assert listed == real


def test_every_metric_has_a_value_once_everything_has_happened() -> None:
    depths = Depths(queue="q", limit=10)
    for family in families(merged([recorded(*EVERYTHING).snapshot()]), [depths]):
        assert family.samples, family.name


# -- figures ---------------------------------------------------------------------------------------


def test_counters_begin_at_zero_so_that_their_first_rise_is_seen() -> None:
    samples = page(recorded(it.Completed("1", "a", 1, 20)))
    labels = {"queue": "q", "name": "a"}
    assert samples.of("jobs_failed_total", kind="error", **labels) == 0
    assert samples.of("jobs_failed_total", kind="timeout", **labels) == 0
    assert samples.of("retries_scheduled_total", **labels) == 0
    assert samples.of("dlq_routed_total", reason="retries_exhausted", **labels) == 0
    assert samples.of("leases_lost_total", queue="q") == 0


def test_a_histogram_is_in_seconds_and_its_bounds_are_inclusive() -> None:
    runs = [it.Completed("1", "a", 1, us) for us in (100, 101, 1_000_000, 400_000_000)]
    samples = page(recorded(*runs, it.RetryScheduled("1", "a", 2, 500), it.Fired("", "", "k", 26)))
    labels = {"queue": "q", "name": "a"}
    bounds = {"0.0001": 1, "0.0005": 2, "0.5": 2, "1.0": 3, "300.0": 3, "+Inf": 4}
    for le, count in bounds.items():
        assert samples.of("handler_duration_seconds_bucket", le=le, **labels) == count, le
    assert samples.of("handler_duration_seconds_count", **labels) == 4
    assert samples.of("handler_duration_seconds_sum", **labels) == pytest.approx(401.000201)
    assert samples.of("retry_backoff_seconds_sum", queue="q") == 0.5
    assert samples.of("scheduler_late_seconds_bucket", queue="q", le="0.1") == 1


def test_workers_are_added_up_and_the_worst_loop_is_shown() -> None:
    recorder = recorded(
        it.Pulsed("c-1", Health(state="running", running=2, queued=1, loop_lag_s=0.5)),
        it.Pulsed("c-2", Health(state="running", running=3, problems=("ill",), paused=True)),
        it.Pulsed("c-3", Health(state="stopped")),
    )
    samples = page(recorder)
    assert samples.of("workers", queue="q") == 2
    assert samples.of("workers_healthy", queue="q") == 1
    assert samples.of("workers_paused", queue="q") == 1
    assert (samples.of("handlers_running", queue="q"), samples.of("jobs_queued", queue="q")) == (
        5,
        1,
    )
    assert samples.of("event_loop_lag_seconds", queue="q") == 0.5


def test_a_queue_whose_workers_ended_has_none_and_a_producer_never_had_any() -> None:
    ended = recorded(it.Pulsed("c", Health(state="stopped")))
    assert page(ended).of("workers", queue="q") == 0
    assert page(recorded(it.Added("1", "a"))).of("workers", queue="q") is None


def test_what_a_leader_knows_is_left_out_where_nobody_leads() -> None:
    leads = recorded(it.LockTurned("promoter", True), it.Ticked(1, 5, 2_500))
    assert page(leads).of("delayed_zset_depth", queue="q") == 5
    assert page(leads).of("promoter_oldest_pending_lag_ms", queue="q") == 2_500
    assert page(leads).of("lock_held", queue="q", role="promoter") == 1
    leads.promoter_lock_outcome(LockOutcome("held", "promoter"))
    assert page(leads).of("delayed_zset_depth", queue="q") is None
    assert page(leads).of("lock_held", queue="q", role="promoter") == 0


def test_depths_are_shown_by_queue_and_group_and_once() -> None:
    queues = (
        Depths(queue="q", waiting=3, oldest_waiting_s=1.5, dead=2, paused=True),
        Depths(queue="q", group="other", waiting=9, dead=2),
    )
    samples = page(queues=queues)
    assert samples.of("queue_waiting", queue="q", group="default") == 3
    assert samples.of("queue_waiting", queue="q", group="other") == 9
    assert samples.of("queue_oldest_waiting_seconds", queue="q", group="default") == 1.5
    assert (samples.of("queue_dead", queue="q"), samples.of("queue_paused", queue="q")) == (2, 1)
    assert samples.of("queue_limit", queue="q") is None


# -- the text format -------------------------------------------------------------------------------


@settings(max_examples=30)
@example("\udcff", "q")
@example('"}\n\\', '\\"')
@given(some.text(), some.text(min_size=1, alphabet=some.characters(codec="utf-8")))
def test_no_name_breaks_the_text_format(name: str, queue: str) -> None:
    recorder = Recorder(queue)
    recorder.job_outcome(JobOutcome("ok", 1, 5, name))
    recorder.job_outcome(JobOutcome("ok", 1, 5, "other"))
    _, body = exposition(recorder.snapshot())
    counts = [v for (m, _), v in Samples(body).items() if m == "chasquimq_jobs_completed_total"]
    assert sum(counts) == 2
    _, body = exposition(recorder.snapshot(), accept="application/openmetrics-text; version=1.0.0")
    assert list(open_metrics(body.decode()))


@pytest.mark.parametrize(
    ("accept", "kind", "end"),
    [
        ("", "text/plain; version=0.0.4", b"\n"),
        ("*/*", "text/plain; version=0.0.4", b"\n"),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text", b"# EOF\n"),
        ("text/plain;version=nonsense", "text/plain; version=0.0.4", b"\n"),
        ("application/openmetrics-text;version=;;=", "", b"\n"),
        ("\x00,;;=,", "text/plain; version=0.0.4", b"\n"),
    ],
)
def test_a_scraper_gets_the_format_that_it_asks_for(accept: str, kind: str, end: bytes) -> None:
    found, body = exposition(recorded(*EVERYTHING).snapshot(), accept=accept)
    assert found.startswith(kind)
    assert body.endswith(end)
    assert "\n" not in found


def test_names_are_bounded_over_all_that_a_page_shows() -> None:
    recorders = [Recorder("q"), Recorder("q")]
    for number in range(MAX_NAMES):
        for place, recorder in enumerate(recorders):
            recorder.job_outcome(JobOutcome("ok", 1, 5, f"{place}-{number}"))
    samples = page(*recorders)
    names = [labels for metric, labels in samples if metric == "chasquimq_jobs_completed_total"]
    assert len(names) == MAX_NAMES + 1
    assert samples.of("jobs_completed_total", queue="q", name=OTHER) == MAX_NAMES


# -- a registry ------------------------------------------------------------------------------------


def test_sinks_share_a_registry_and_those_of_a_queue_are_added_up() -> None:
    registry = CollectorRegistry(auto_describe=True)
    sinks = [PrometheusSink(queue, registry) for queue in ("mail", "mail", "files")]
    for sink in sinks:
        sink.job_outcome(JobOutcome("ok", 1, 5, "a"))
    samples = Samples(generate_latest(registry))
    assert samples.of("jobs_completed_total", queue="mail", name="a") == 2
    assert samples.of("jobs_completed_total", queue="files", name="a") == 1
    only = registry.restricted_registry(["chasquimq_workers"])
    assert b"chasquimq_jobs" not in generate_latest(only)


def test_without_a_registry_it_is_the_one_of_the_library() -> None:
    program = (
        "from chasquimq.observe.prometheus import PrometheusSink\n"
        "import sys\n"
        "assert 'prometheus_client' not in sys.modules\n"
        "PrometheusSink('mail').leases_lost(3)\n"
        "from prometheus_client import REGISTRY\n"
        "print(REGISTRY.get_sample_value('chasquimq_leases_lost_total', {'queue': 'mail'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert float(done.stdout) == 3


def test_without_the_library_the_error_says_what_to_install(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'chasquimq-py\[metrics\]'"):
        PrometheusSink("mail")
    with (
        pytest.raises(ConfigError, match=r"pip install 'chasquimq-py\[metrics\]'"),
        serve(desk.worker(lambda job: None), "0"),
    ):
        pass


# -- real workers ----------------------------------------------------------------------------------


async def test_a_worker_and_a_producer_are_shown_as_they_are(desk: Desk) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Job) -> None:
        if job.name == "bad":
            raise UnrecoverableError("no")
        if job.name == "flaky" and job.attempt == 0:
            raise ValueError("not yet")
        if job.name == "long":
            started.set()
            await go.wait()

    registry = CollectorRegistry()
    probe = Probe([Target(desk.name, Dialer(read_url(desk.server.url)))], fresh_s=0.0)
    worker_sink = PrometheusSink(desk.name, registry, probe=probe)
    producer_sink = PrometheusSink(desk.name, registry)
    async with desk.queue(metrics=producer_sink) as queue:
        for name in ("fine", "fine", "bad", "flaky", "long"):
            await queue.add(name, None, backoff=1)
        await queue.add("later", None, delay=3_600_000)
        async with desk.working(handler, metrics=worker_sink):
            await started.wait()
            await eventually(lambda: desk.waiting() == 1 and desk.delayed() == 1)
            health = worker_sink.snapshot
            await eventually(lambda: health().workers and health().workers[0].health.running == 1)
            await eventually(
                lambda: health().queues[desk.name].held == {"promoter": 1, "scheduler": 1}
            )
            await eventually(lambda: health().queues[desk.name].delayed == 1)
            samples = Samples(await asyncio.to_thread(generate_latest, registry))
            go.set()
            await eventually(lambda: desk.waiting() == 0)
    probe.close()

    def of(metric: str, **labels: str) -> float | None:
        return samples.of(metric, queue=desk.name, **labels)

    assert of("jobs_completed_total", name="fine") == 2
    assert of("jobs_failed_total", name="bad", kind="error") == 1
    assert of("dlq_routed_total", name="bad", reason="unrecoverable") == 1
    assert of("jobs_failed_total", name="flaky", kind="error") == 1
    assert of("jobs_completed_total", name="flaky") == 1
    assert of("retries_scheduled_total", name="flaky") == 1
    assert of("promoter_promoted_total") == 1
    assert of("jobs_added_total", name="fine", delayed="no") == 2
    assert of("jobs_added_total", name="later", delayed="yes") == 1
    assert (of("workers"), of("handlers_running"), of("jobs_held")) == (1, 1, 1)
    assert (of("lock_held", role="promoter"), of("lock_held", role="scheduler")) == (1, 1)
    assert of("promoter_lock_acquired_total", role="promoter") == 1
    assert (of("queue_pending", group="default"), of("queue_dead"), of("queue_delayed")) == (
        1,
        1,
        1,
    )
    assert of("delayed_zset_depth") == 1
    assert of("reconnects_total", connection="reader") == 0
    after = Samples(generate_latest(registry))
    assert after.of("workers", queue=desk.name) == 0
    assert after.of("jobs_completed_total", queue=desk.name, name="long") == 1
