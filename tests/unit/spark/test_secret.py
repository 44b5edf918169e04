"""The address is found by name on each node, and neither it nor its password is shown."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chasquimq.address import Endpoint, Secret
from chasquimq.errors import ConfigError
from chasquimq.spark.options import sink_options, source_options
from chasquimq.spark.secret import MOST_BYTES, Where

PASSWORD = "c4nary p@ss:w/?#rd%"  # not a secret
ENCODED = quote(PASSWORD, safe="")


def written(folder: Path, text: str | bytes) -> str:
    path = folder / "secret"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def refusal(where: Where) -> str:
    with pytest.raises(ConfigError) as refused:
        where.address()
    return "".join(traceback.format_exception(refused.value))


def test_without_a_word_it_is_the_usual_place() -> None:
    assert Where().address().endpoint == Endpoint("127.0.0.1", 6379)


def test_url_is_the_address_itself() -> None:
    address = Where(url="rediss://redis.example:7000/3?ssl_ca_certs=/ca.pem").address()
    assert str(address) == "rediss://redis.example:7000/3"
    assert (address.tls, address.ca_file) == (True, "/ca.pem")


@pytest.mark.parametrize("url", [f"redis://:{ENCODED}@h", f"u:{ENCODED}@h", "redis://u:p@h:1/2"])
def test_a_password_in_url_is_refused_by_name(url: str) -> None:
    for options in (source_options, sink_options):
        with pytest.raises(ConfigError) as refused:
            options({"queue": "mail", "url": url})
        told = "".join(traceback.format_exception(refused.value))
        assert "urlEnv" in told and "secretFile" in told
        assert ENCODED not in told and ":p@" not in told


@pytest.mark.parametrize("scheme", ["", "redis://", "rediss://", "redis+cluster://"])
def test_a_password_without_its_colon_is_refused_as_well(scheme: str) -> None:
    for options in (source_options, sink_options):
        with pytest.raises(ConfigError, match="url names a user without a password") as refused:
            options({"queue": "mail", "url": f"{scheme}{ENCODED}@h"})
        told = "".join(traceback.format_exception(refused.value))
        assert "urlEnv" in told and "secretFile" in told
        assert "c4nary" not in told


def test_a_password_without_its_colon_is_refused_where_a_name_leads_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_REDIS", f"redis://{ENCODED}@h")
    file = written(tmp_path, f"redis://{ENCODED}@h")
    for where in (Where(url_env="SOME_REDIS"), Where(secret_file=file)):
        told = refusal(where)
        assert "write redis://:password@host" in told and "c4nary" not in told


def test_url_env_is_looked_up_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    where = Where(url_env="SOME_REDIS")
    monkeypatch.setenv("SOME_REDIS", f"redis://u:{ENCODED}@first:1\n")
    assert where.address().password == Secret(PASSWORD)
    monkeypatch.setenv("SOME_REDIS", "unix:///run/redis.sock")
    assert where.address().endpoint.path == "/run/redis.sock"


def test_a_variable_that_is_not_there_names_itself_and_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SOME_REDIS", raising=False)
    told = refusal(Where(url_env="SOME_REDIS"))
    assert "SOME_REDIS, which is not set on" in told and os.uname().nodename in told
    monkeypatch.setenv("SOME_REDIS", " ")
    assert "SOME_REDIS, which is empty on" in refusal(Where(url_env="SOME_REDIS"))


def test_a_variable_that_holds_no_address_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_REDIS", f"http://u:{ENCODED}@h")
    told = refusal(Where(url_env="SOME_REDIS"))
    assert "SOME_REDIS holds" in told and ENCODED not in told


@pytest.mark.parametrize("given", [f"redis://:{ENCODED}@h", "", "A B", "1A", "A=B", "A\n"])
def test_url_env_is_a_name(given: str) -> None:
    with pytest.raises(ConfigError, match="urlEnv is the name of an environment variable") as no:
        Where(url_env=given)
    assert ENCODED not in str(no.value)


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_file_holds_an_address(tmp_path: Path, end: str) -> None:
    where = Where(secret_file=written(tmp_path, f" rediss://u:{ENCODED}@h:7/1{end}"))
    address = where.address()
    assert (address.username, address.password, address.db) == ("u", Secret(PASSWORD), 1)


@pytest.mark.parametrize("kind", ["redis+cluster", "rediss+cluster", "redis+sentinel"])
def test_a_file_holds_the_address_of_several_servers(tmp_path: Path, kind: str) -> None:
    """It is no password, which would be sent to whoever listens in the usual place."""
    name = "/main" if kind.endswith("sentinel") else ""
    where = Where(secret_file=written(tmp_path, f"{kind}://u:{ENCODED}@a:7,b:8{name}\n"))
    address = where.address()
    assert (address.username, address.password) == ("u", Secret(PASSWORD))
    assert [place.port for place in address.places] == [7, 8]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_file_holds_the_password_alone_as_it_is(tmp_path: Path, end: str) -> None:
    path = written(tmp_path, f"{PASSWORD}{end}")
    address = Where(url="redis://reader@h:7/1", secret_file=path).address()
    assert (str(address), address.password) == ("redis://reader:***@h:7/1", Secret(PASSWORD))
    assert Where(secret_file=path).address().endpoint.port == 6379


@given(st.text(min_size=1).filter(lambda text: len(text.splitlines()) == 1 and text.strip()))
@example(" blanks ")
@example("100%:/@#?")
@example("u:password@h")
def test_any_line_is_a_password(tmp_path_factory: pytest.TempPathFactory, password: str) -> None:
    if password.encode("utf-8", "ignore").decode() != password or password != password.rstrip(
        "\r\n"
    ):
        return
    path = written(tmp_path_factory.getbasetemp(), password)
    assert Where(secret_file=path).address().password == Secret(password.removeprefix("\ufeff"))


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    """So a password may be rotated under a query that runs."""
    where = Where(secret_file=written(tmp_path, "first"))
    assert where.address().password == Secret("first")
    written(tmp_path, "second")
    assert where.address().password == Secret("second")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("one\ntwo", "it holds more than one line"),
        ("x" * (MOST_BYTES + 1), "it holds more than one line"),
        (b"\xff\xfe\x00", "it holds no text"),
    ],
)
def test_a_file_that_holds_no_secret(tmp_path: Path, content: str | bytes, words: str) -> None:
    told = refusal(Where(secret_file=written(tmp_path, content)))
    assert words in told and os.uname().nodename in told and "every executor" in told


def test_a_file_that_is_none(tmp_path: Path) -> None:
    assert "there is none" in refusal(Where(secret_file=str(tmp_path / "nothing")))
    assert "it is no plain file" in refusal(Where(secret_file=str(tmp_path)))
    os.mkfifo(tmp_path / "pipe")
    assert "it is no plain file" in refusal(Where(secret_file=str(tmp_path / "pipe")))


def test_a_link_to_a_file_will_do(tmp_path: Path) -> None:
    """As Kubernetes mounts its secrets."""
    written(tmp_path, "password")
    (tmp_path / "link").symlink_to("secret")
    assert Where(secret_file=str(tmp_path / "link")).address().password == Secret("password")


@pytest.mark.parametrize("given", ["hunter2", "~/secret", "./secret", f"redis://:{ENCODED}@h"])
def test_a_path_is_whole_and_never_shown_if_it_is_not(given: str) -> None:
    with pytest.raises(ConfigError, match="secretFile is the whole path") as refused:
        Where(secret_file=given)
    assert given not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"url": "redis://h", "urlEnv": "SOME_REDIS"},
        {"urlEnv": "SOME_REDIS", "secretFile": "/a"},
        {"url": "redis://h", "urlEnv": "SOME_REDIS", "secretFile": "/a"},
    ],
)
def test_the_address_is_said_once(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="urlEnv holds the whole address"):
        source_options({"queue": "mail", **given})


def test_a_whole_address_in_the_file_beside_url_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, f"redis://:{ENCODED}@elsewhere")
    told = refusal(Where(url="redis://h", secret_file=path))
    assert "leave out url" in told and ENCODED not in told and PASSWORD not in told


def test_neither_text_nor_pickle_holds_what_a_name_leads_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOME_REDIS", f"redis://:{ENCODED}@h")
    path = written(tmp_path, PASSWORD)
    for named in ({"urlEnv": "SOME_REDIS"}, {"url": "redis://h", "secretFile": path}):
        options = source_options({"queue": "mail", **named})
        assert options.where.address().password == Secret(PASSWORD)
        for seen in (repr(options), repr(options.where.address()), str(pickle.dumps(options))):
            assert PASSWORD not in seen and ENCODED not in seen
