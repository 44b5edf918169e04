"""`chasqui dlq`, as people and programs see it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from chasquimq import wire
from tests.cli.dead import Grave, grave, shown
from tests.cli.golden import same
from tests.cli.kit import CTRL_C, Chasqui

__all__ = ["grave", "shown"]


# -- peek ------------------------------------------------------------------------------------------

OTHERS = " (limit {}); run it again, or give another --limit"


def test_dead_jobs_in_a_pipe(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    ended = chasqui.call("dlq", "peek", grave.queue)
    assert (ended.code, ended.err) == (0, "")
    same("dlq-piped", ended.out, grave.words)


@pytest.mark.parametrize("columns", [80, 120])
def test_dead_jobs_in_a_terminal(shown: Chasqui, columns: int) -> None:
    grave = Grave(shown)
    grave.fill()
    with shown.open("dlq", "peek", grave.queue, columns=columns, rows=40) as terminal:
        assert terminal.end() == 0
        same(f"dlq-{columns}", terminal.text, grave.words)


def test_one_dead_job_with_all_it_holds(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    with shown.open("dlq", "peek", grave.queue, "--full", "--limit", "1", rows=40) as terminal:
        assert terminal.end() == 0
        text = "\n".join(line for line in terminal.lines if "died" not in line)
        same("dlq-full-80", text, grave.words)


def test_all_columns_of_the_reference_come_first_and_in_its_order(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    head, first, *_ = shown.call("dlq", "peek", grave.queue).out.splitlines()
    columns = [f"dlq peek: {grave.queue}", *("source_id", "name", "reason", "detail")]
    places = [head.index(column) for column in (*columns, "payload bytes")]
    assert places == sorted(places) and places[0] == 0
    assert first.startswith(grave.ids[0])


def test_an_empty_dlq_says_so_in_both_tables(chasqui: Chasqui, grave: Grave) -> None:
    ended = chasqui.call("dlq", "peek", grave.queue)
    assert ended.code == 0
    assert "(empty)" in ended.out and "(no entries)" in ended.out


def test_a_detail_is_cut_at_sixty_bytes_and_never_in_a_character(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.bury(reason="malformed", detail="x" * 59 + "ää")
    grave.bury(reason="malformed", detail="y" * 60)
    out = shown.call("dlq", "peek", grave.queue).out
    assert "x" * 59 + "… " in out
    assert "y" * 60 + " " in out


def test_the_reasons_say_of_what_they_were_counted(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    assert "of the whole DLQ" in chasqui.call("dlq", "peek", grave.queue).out
    some = chasqui.call("dlq", "peek", grave.queue, "--limit", "3")
    assert "of the 3 above; the DLQ has 4" in some.out
    assert f"--after {grave.ids[2]}" in some.err
    rest = chasqui.call("dlq", "peek", grave.queue, "--after", grave.ids[2], "--json")
    assert [one["dlq_id"] for one in json.loads(rest.out)["entries"]] == grave.ids[3:]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--name", "welcome"], [0, 1]),
        (["--reason", "unrecoverable"], [2]),
        (["--error-type", "ValueError", "--older-than", "60h"], [0]),
        (["--newer-than", "36h"], [2, 3]),
        (["--id", "job-2", "--id", "1700000000003-0"], [1, 3]),
    ],
)
def test_filters_choose(
    chasqui: Chasqui, grave: Grave, options: list[str], expected: list[int]
) -> None:
    grave.fill()
    found = json.loads(chasqui.call("dlq", "peek", grave.queue, *options, "--json").out)
    assert [one["dlq_id"] for one in found["entries"]] == [grave.ids[at] for at in expected]
    assert found["dead"] == 4


def test_json_has_the_data_only_where_it_was_asked_for(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    plain = json.loads(shown.call("dlq", "peek", grave.queue, "--json").out)["entries"]
    assert "data" not in plain[0] and "payload" not in plain[0]
    asked = json.loads(shown.call("dlq", "peek", grave.queue, "--json", "--payload").out)
    first, *_, last = asked["entries"]
    assert first["data"] == {"user": 42, "key": {"base64": "AP8="}, "tags": ["a", 1.5]}
    assert first["payload_bytes"] == plain[0]["payload_bytes"] > 40
    assert "data" not in last and last["payload"] == {"base64": "wcEgbm8gZW52ZWxvcGU="}


def test_a_payload_is_shown_up_to_a_limit_which_is_said(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.bury("digest", {"text": "long " * 600})
    cut = shown.call("dlq", "peek", grave.queue, "--payload").out
    assert "long …" in cut and "data is shown in part" in cut
    full = shown.call("dlq", "peek", grave.queue, "--full").out
    assert "shown in part: it has 3,009 bytes; --payload-limit 0 shows all" in full
    whole = shown.call("dlq", "peek", grave.queue, "--full", "--payload-limit", "0").out
    assert "long " * 600 in whole and "shown in part" not in whole


def test_what_cannot_be_read_is_dumped(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.bury(envelope=b"\xc1\xc1 no envelope", reason="malformed")
    out = shown.call("dlq", "peek", grave.queue, "--full").out
    assert "00000000  c1 c1 20 6e 6f 20 65 6e  76 65 6c 6f 70 65" in out
    assert "|.. no envelope|" in out and "not a job envelope" in out


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("reason", {"malformed": 1, "retries_exhausted": 252, "unrecoverable": 1}),
        ("error", {"KeyError": 250, "ValueError": 2, "UnrecoverableError": 1, "": 1}),
        ("name", {"welcome": 252, "digest": 1, "": 1}),
    ],
)
def test_the_whole_dlq_is_counted(
    chasqui: Chasqui, grave: Grave, by: str, expected: dict[str, int]
) -> None:
    grave.fill()
    grave.bury_many(250, error_type="KeyError")
    found = json.loads(chasqui.call("dlq", "peek", grave.queue, "--by", by, "--json").out)
    assert {kind["value"]: kind["count"] for kind in found["kinds"]} == expected
    assert found["dead"] == found["counted"] == grave.rows == sum(expected.values())


def test_counts_as_a_table(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    same("dlq-by-error", shown.call("dlq", "peek", grave.queue, "--by", "error").out)


def test_an_unknown_word_names_the_known(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    reason = shown.call("dlq", "peek", grave.queue, "--reason", "malform")
    assert (reason.code, reason.out) == (2, "")
    assert "did you mean 'malformed'?" in reason.err
    error = shown.call("dlq", "peek", grave.queue, "--error-type", "ValueErorr")
    assert error.code == 0 and "(empty)" in error.out
    assert "did you mean 'ValueError'?" in error.err
    other = shown.call("dlq", "replay", grave.queue, "--name", "zzz", "--yes")
    assert "no dead job has the name 'zzz'; known: welcome, digest" in other.err
    assert shown.call("dlq", "peek", grave.queue, "--by", "color").code == 2


@pytest.mark.parametrize("verb", ["peek", "replay", "purge", "export"])
def test_a_queue_that_is_none_is_not_taken_for_an_empty_dlq(shown: Chasqui, verb: str) -> None:
    grave = Grave(shown)
    grave.fill()
    options = {"replay": ["--yes"], "purge": ["--everything", "--yes"]}.get(verb, [])
    said = shown.call("dlq", verb, f"{grave.queue}s", *options)
    assert f"there is no queue '{grave.queue}s' here: did you mean '{grave.queue}'?" in said.err
    missed = shown.call("dlq", verb, grave.queue, "--id", "x").err
    assert "no dead job has the id x" in missed and "there is no queue" not in missed


# -- replay ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [b"y\n", b"Y\n", b"yes\n", b"YeS\n"])
def test_a_replay_goes_on_after_a_yes(shown: Chasqui, answer: bytes) -> None:
    grave = Grave(shown)
    grave.fill()
    ended = shown.call("dlq", "replay", grave.queue, "--limit", "2", input=answer)
    assert (ended.code, ended.out) == (0, f"replayed 2 of 4 dead jobs{OTHERS.format(2)}\n")
    assert f"replay 2 dead jobs into queue '{grave.queue}'? [y/N] " in ended.err
    assert (grave.rows, grave.waiting) == (2, 2)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"", b"yess\n", b"y e s\n"])
def test_anything_else_is_no(shown: Chasqui, answer: bytes) -> None:
    grave = Grave(shown)
    grave.fill()
    ended = shown.call("dlq", "replay", grave.queue, input=answer)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.endswith("chasqui: aborted\n")
    assert (grave.rows, grave.waiting) == (4, 0)


def test_a_replay_unasked_says_how_many_of_how_many(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    ended = chasqui.call("dlq", "replay", grave.queue, "--yes")
    assert (ended.code, ended.out) == (0, "replayed 3 of 4 dead jobs\n")
    assert (grave.rows, grave.waiting) == (1, 3)
    data = [fields[b"d"] for _, fields in grave.client.xrange(grave.keys.stream)]
    assert [wire.unpack_envelope(one).id for one in data] == ["job-1", "job-2", "job-3"]


def test_a_replay_says_that_its_limit_left_others(chasqui: Chasqui, grave: Grave) -> None:
    """The usual limit is 100, and there are 2,858."""
    grave.bury_many(2_858, error_type="KeyError")
    command = ("dlq", "replay", grave.queue, "--yes")
    ended = chasqui.call(*command)
    assert (ended.code, ended.out) == (
        0,
        f"replayed 100 of 2,858 dead jobs{OTHERS.format(100)}\n",
    )
    some = chasqui.call(*command, "--error-type", "KeyError", "--limit", "58")
    assert some.out == f"replayed 58 dead jobs{OTHERS.format(58)}\n"
    told = json.loads(chasqui.call(*command, "--limit", "700", "--json").out)
    assert (told["replayed"], told["limit"], told["dead"]) == (700, 700, 2_000)
    rest = chasqui.call(*command, "--limit", "2000")
    assert rest.out == "replayed 2,000 of 2,000 dead jobs\n"
    assert (grave.rows, grave.waiting) == (0, 2_858)


def test_a_dry_run_says_how_many_and_changes_nothing(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    some = chasqui.call("dlq", "replay", grave.queue, "--dry-run", "--limit", "2")
    assert some.out == f"would have replayed 2 of 4 dead jobs{OTHERS.format(2)}\n"
    every = chasqui.call("dlq", "replay", grave.queue, "--all", "--dry-run", "--json")
    assert json.loads(every.out) == {
        "queue": grave.queue,
        "replayed": 3,
        "limit": 3,
        "dry_run": True,
        "dead": 4,
    }
    purge = chasqui.call("dlq", "purge", grave.queue, "--everything", "--dry-run")
    assert purge.out == "would have purged 4 of 4 dead jobs\n"
    assert (grave.rows, grave.waiting) == (4, 0)


def test_all_is_all_with_filters_and_a_rate(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    grave.bury_many(150, error_type="KeyError")
    options = ("--all", "--error-type", "KeyError", "--rate", "100000", "--yes")
    ended = chasqui.call("dlq", "replay", grave.queue, *options)
    assert ended.out == "replayed 150 dead jobs\n"
    assert (grave.rows, grave.waiting) == (4, 150)
    assert chasqui.call("dlq", "replay", grave.queue, "--all", "--limit", "1").code == 2


@pytest.mark.parametrize(
    ("keys", "code", "says", "left"),
    [(b"Y\r", 0, "replayed 3 of 4 dead jobs", 1), (b"\r", 1, "aborted", 4), (CTRL_C, 130, "", 4)],
)
def test_the_question_in_a_terminal(
    shown: Chasqui, keys: bytes, code: int, says: str, left: int
) -> None:
    grave = Grave(shown)
    grave.fill()
    with shown.open("dlq", "replay", grave.queue) as terminal:
        terminal.until("[y/N]")
        terminal.press(keys)
        assert terminal.end() == code
        assert says in terminal.text
    assert grave.rows == left


def test_ctrl_c_in_a_replay_says_how_many_and_loses_none(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.bury_many(1_000)
    options = ("--all", "--yes", "--rate", "400")
    with shown.open("dlq", "replay", grave.queue, *options) as terminal:
        terminal.until("replaying")  # the bar
        terminal.press(CTRL_C)
        assert terminal.end() == 130
        text = terminal.text
    assert "stopped; the rest is still dead" in text
    assert 0 < grave.waiting < 1_000
    assert f"replayed {grave.waiting} of 1,000 dead jobs" in text
    assert grave.waiting + grave.rows == 1_000


# -- purge -----------------------------------------------------------------------------------------


def test_a_purge_wants_a_filter_or_everything(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    for options in ([], ["--everything", "--name", "welcome"]):
        ended = shown.call("dlq", "purge", grave.queue, *options, "--yes")
        assert ended.code == 2 and "--everything" in ended.err
    assert grave.rows == 4


def test_a_purge_without_a_terminal_wants_yes(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    ended = shown.call("dlq", "purge", grave.queue, "--everything", input=b"y\n")
    assert (ended.code, ended.out) == (1, "")
    assert "--yes" in ended.err and "4 dead jobs" in ended.err
    assert grave.rows == 4


def test_a_purge_deletes_what_was_meant(chasqui: Chasqui, grave: Grave) -> None:
    grave.fill()
    ended = chasqui.call("dlq", "purge", grave.queue, "--older-than", "36h", "--yes")
    assert (ended.code, ended.out) == (0, "purged 2 dead jobs\n")
    one = chasqui.call("dlq", "purge", grave.queue, "--everything", "--limit", "1", "--yes")
    assert one.out == f"purged 1 of 2 dead jobs{OTHERS.format(1)}\n"
    assert grave.ids == ["1700000000003-0"]


def test_the_purge_asks_in_a_terminal(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    with shown.open("dlq", "purge", grave.queue, "--everything") as terminal:
        terminal.until(f"delete 4 dead jobs of queue '{grave.queue}' for good? [y/N]")
        grave.bury()  # it dies while somebody thinks: nobody was asked about it
        terminal.press(b"yes\r")
        assert terminal.end() == 0
        assert "purged 4 of 4 dead jobs" in terminal.text
    assert grave.ids == ["1700000000004-0"]


# -- export and import -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dead.jsonl", "dead.msgpack"])
def test_an_export_comes_back_to_the_byte(
    chasqui: Chasqui, grave: Grave, tmp_path: Path, name: str
) -> None:
    grave.fill()
    before = [fields for _, fields in grave.client.xrange(grave.keys.dlq)]
    file = tmp_path / name
    ended = chasqui.call("dlq", "export", grave.queue, str(file))
    assert (ended.code, ended.out) == (0, f"exported 4 entries to {file}\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert chasqui.call("dlq", "purge", grave.queue, "--everything", "--yes").code == 0
    dry = chasqui.call("dlq", "import", grave.queue, str(file), "--dry-run")
    assert dry.out == "would have imported 4 entries\n" and grave.rows == 0
    assert chasqui.call("dlq", "import", grave.queue, str(file)).out == "imported 4 entries\n"
    assert [fields for _, fields in grave.client.xrange(grave.keys.dlq)] == before
    assert chasqui.call("dlq", "import", grave.queue, str(file)).out == "imported 0 entries\n"


def test_a_file_that_is_there_stays_unless_forced(shown: Chasqui, tmp_path: Path) -> None:
    grave = Grave(shown)
    grave.fill()
    file = tmp_path / "dead.jsonl"
    file.write_text("mine")
    ended = shown.call("dlq", "export", grave.queue, str(file))
    assert ended.code == 1 and "--force" in ended.err
    assert file.read_text() == "mine"
    forced = shown.call("dlq", "export", grave.queue, str(file), "--force", "--name", "digest")
    assert forced.code == 0
    assert [json.loads(line)["job_id"] for line in file.read_text().splitlines()] == ["job-3"]


def test_an_export_through_a_pipe(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    out = shown.run("dlq", "export", grave.queue)
    assert (out.code, out.err) == (0, "exported 4 entries\n")
    assert len(out.out.splitlines()) == 4
    other = Grave(shown)
    back = shown.run("dlq", "import", other.queue, "-", input=out.out.encode())
    assert (back.code, back.out, other.rows) == (0, "imported 4 entries\n", 4)


def test_files_that_cannot_be_had_are_one_line(shown: Chasqui) -> None:
    grave = Grave(shown)
    grave.fill()
    for verb in ("import", "export"):
        ended = shown.call("dlq", verb, grave.queue, "/nowhere/dead.jsonl")
        assert ended.code == 1
        assert ended.err == "chasqui: /nowhere/dead.jsonl: No such file or directory\n"
    broken = shown.call("dlq", "import", grave.queue, "-", input=b'{"no": "row"}\n')
    assert broken.code == 1 and "line 1" in broken.err


def test_a_terminal_is_not_filled_with_an_export_by_accident(shown: Chasqui) -> None:
    with shown.open("dlq", "export", "nobody") as terminal:
        assert terminal.end() == 2
        assert "- for this terminal" in " ".join(terminal.text.split())
