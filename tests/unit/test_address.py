"""A Redis URL is read into a place to connect to, and shows its secret to nobody."""

from __future__ import annotations

import logging
import re
import ssl
import traceback
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.address import DEFAULT_URL, Address, Endpoint, Secret, hide, read_url
from chasquimq.errors import ArgumentError, ConfigError

URLS = [  # (url, what it says)
    ("redis://h", Address(Endpoint("h", 6379))),
    ("redis://h:1234/5", Address(Endpoint("h", 1234), 5)),
    ("redis://h:1234/", Address(Endpoint("h", 1234))),
    ("redis://", Address(Endpoint("127.0.0.1", 6379))),
    ("h:1234/5", Address(Endpoint("h", 1234), 5)),
    ("h", Address(Endpoint("h", 6379))),
    ("redis://[::1]:1234/5", Address(Endpoint("::1", 1234), 5)),
    ("redis://u:password@h", Address(Endpoint("h", 6379), 0, "u", Secret("password"))),
    ("u:password@h", Address(Endpoint("h", 6379), 0, "u", Secret("password"))),
    ("redis://:password@h", Address(Endpoint("h", 6379), 0, None, Secret("password"))),
    (f"redis://:{'p%40%2F%3A%25'}@h", Address(Endpoint("h", 6379), 0, None, Secret("p@/:%"))),
    ("redis://:a@b@h", Address(Endpoint("h", 6379), 0, None, Secret("a@b"))),
    ("redis://u%3A:password@h", Address(Endpoint("h", 6379), 0, "u:", Secret("password"))),
    ("rediss://h", Address(Endpoint("h", 6379), tls=True)),
    ("rediss://h?ssl_ca_certs=/a", Address(Endpoint("h", 6379), tls=True, ca_file="/a")),
    (
        "rediss://h/2?ssl_certfile=/c&ssl_keyfile=/k",
        Address(Endpoint("h", 6379), 2, tls=True, cert_file="/c", key_file="/k"),
    ),
    ("rediss://h?insecure=true", Address(Endpoint("h", 6379), tls=True, insecure=True)),
    ("rediss://h?insecure=no", Address(Endpoint("h", 6379), tls=True)),
    ("rediss://h?insecure=ON", Address(Endpoint("h", 6379), tls=True, insecure=True)),
    ("rediss://h?insecure=Off", Address(Endpoint("h", 6379), tls=True)),
    ("redis", Address(Endpoint("redis", 6379))),  # by a bare name, as in a compose file
    ("redis/2", Address(Endpoint("redis", 6379), 2)),
    ("redis:/2", Address(Endpoint("redis", 6379), 2)),
    ("unix:///tmp/a.sock", Address(Endpoint("", 0, "/tmp/a.sock"))),
    ("unix:///tmp/a%20b.sock?db=3", Address(Endpoint("", 0, "/tmp/a b.sock"), 3)),
    (
        "unix://u:password@/tmp/a.sock",
        Address(Endpoint("", 0, "/tmp/a.sock"), 0, "u", Secret("password")),
    ),
]
REFUSED = [  # (url, what the message says of it)
    ("http://h", "'http://h' must start with redis://, rediss://, unix://, redis"),
    ("redis://h/a", "'redis://h/a' must end in a database number"),
    ("redis:/h:6379", "'redis:/h:6379' must start with redis://, rediss://"),
    ("redis//h", "'redis//h' must start with redis://"),
    ("rediss:/:pass@h", r"'\*\*\*@h' must start with redis://"),  # not a secret
    ("redis://h/1/2", "must end in a database number"),
    ("redis://h/-1", "must end in a database number"),
    ("redis://h/\u0663", "must end in a database number"),  # a digit, but not one of ours
    ("redis://h/" + "9" * 5_000, "must end in a database number"),  # no int of Python's
    ("redis://h:99999", "'redis://h:99999' cannot be read; percent-encode"),
    ("redis://h:1234?db=5", r"names its database by \?db=; write …:1234/5"),
    ("redis://[::1", r"'redis://\*\*\*' cannot be read"),
    ("redis://h?ssl_ca_cert=/a", "has no option 'ssl_ca_cert'; did you mean 'ssl_ca_certs'"),
    ("unix:///a.sock?timeout=3", "has no option 'timeout'; known: db"),
    ("unix:///a.sock?db=x", "must end in a database number"),
    ("unix://tmp/a.sock", "names no socket; write three slashes"),
    ("unix://", "names no socket"),
    ("redis://[::x]:7", "cannot be read"),
    ("redis://]a@[:", "cannot be read"),
    ("redis+cluster://[::x]:7", "cannot be read"),
    ("redis://" + "w" * 64, "names a host that no server can have"),
    ("redis://a..b", "names a host that no server can have"),
    ("redis://" + "界" * 60, "names a host that no server can have"),
    ("redis+cluster://a,b..c", "names a host that no server can have"),
    ("redis+sentinel://h", "names no master; write redis"),
    ("redis+sentinel://h:x/m", "names a place that is no host:port"),
    ("redis+sentinel://h,,i/m", "names a place that is no host:port"),
    ("redis+cluster://h:0", "names a place that is no host:port"),
    ("redis+cluster://h/1", "a cluster has one database"),
    ("redis+cluster://h?sentinel_username=a", "has no option 'sentinel_username'"),
    ("redis+other://h", "must start with redis://"),
    ("redis+sentinel://u:p,q@h:1,x:y/m", r"'redis\+sentinel://\*\*\*@h:1,x:y/m'"),  # not a secret
    ("redis://:12#34@h", r"'redis://\*\*\*@h' cannot be read; percent-encode"),  # not a secret
    (
        "redis://h?ssl_ca_certs=/a",
        "asks by ssl_ca_certs for TLS, and is plain TCP; write rediss://$",
    ),
    ("h?ssl_certfile=/c&ssl_keyfile=/k", "asks by ssl_certfile for TLS.*; write rediss://$"),
    ("REDIS://h?ssl_keyfile=/k", "asks by ssl_keyfile for TLS.*; write rediss://$"),
    ("redis://h?insecure=true", "asks by insecure for TLS.*; write rediss://$"),
    ("redis://h?insecure=no", "asks by insecure for TLS.*; write rediss://$"),
    ("redis+sentinel://h/m?ssl_ca_certs=/a", r"and is plain TCP; write rediss\+sentinel://$"),
    ("redis+cluster://h?insecure=1", r"and is plain TCP; write rediss\+cluster://$"),
    ("rediss://h?ssl_keyfile=/k", "has a key and no certificate; add ssl_certfile=/path"),
    ("rediss+cluster://h?ssl_keyfile=/k", "has a key and no certificate"),
    ("rediss://h?ssl_ca_certs=", "has nothing behind ssl_ca_certs="),
    ("rediss://h?ssl_certfile=&ssl_keyfile=/k", "has nothing behind ssl_certfile="),
    *(
        (f"rediss://h?insecure={word}", "must say insecure=true, or leave it out")
        for word in ("maybe", "2", "tru", "yes!", "y", "none", "-1", "%20true", "trüe")
    ),
    ("rediss+sentinel://h/m?insecure=maybe", "must say insecure=true, or leave it out"),
    ("rediss://h?insecure=", "has nothing behind insecure="),
    ("redis://u@h", r"'redis://\*\*\*@h' has a user without .*; write redis://:password@host, or"),
    ("redis://u:@h", "has a user without a password, or a password without a colon"),
    ("u@h", "; write redis://:password@host, or redis://user:password@host$"),
    ("rediss://u@h", "; write rediss://:password@host, or rediss://user:password@host$"),
    ("unix://u@/a.sock", "write unix://:password@/path/to.sock, or unix://user:password@/path"),
    ("redis+sentinel://u@h,i/m", r"write redis\+sentinel://:password@host"),
    ("rediss+cluster://u@h,i", r"write rediss\+cluster://:password@host"),
    ("redis://h\ud800", r"'redis://h\\ud800' holds a lone surrogate"),
    ("redis://u:\udcff@h", r"'redis://\*\*\*@h' holds a lone surrogate"),  # not a secret
    ("unix:///\udce9.sock", "holds a lone surrogate"),
    ("rediss://h?ssl_ca_certs=/\ud83d", "holds a lone surrogate"),
    ("redis+sentinel://h/\udfff", "holds a lone surrogate"),
    ("\ud800", "holds a lone surrogate"),
]


@pytest.mark.parametrize(("url", "expected"), URLS)
def test_a_url_is_read(url: str, expected: Address) -> None:
    assert read_url(url) == expected


@pytest.mark.parametrize(("url", "message"), REFUSED)
def test_a_url_that_makes_no_sense_is_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^CMQ-004: .*{message}"):
        read_url(url)


def test_the_default_is_this_machine() -> None:
    assert read_url(DEFAULT_URL).resolve() == Endpoint("127.0.0.1", 6379)


@pytest.mark.parametrize("url", ["redis://h", "rediss://h", "h"])
def test_tls_can_be_asked_for_beside_the_url(url: str) -> None:
    assert read_url(url, tls=True).tls


def test_options_of_tls_may_stand_beside_it() -> None:
    address = read_url("redis://h?ssl_ca_certs=/a&insecure=off", tls=True)
    assert (address.tls, address.ca_file, address.insecure) == (True, "/a", False)


def test_a_unix_socket_has_no_tls() -> None:
    with pytest.raises(ConfigError, match="has no TLS; leave out tls=True"):
        read_url("unix:///a.sock", tls=True)


LONE = ["redis://u@h", "u@h", "unix://u@/a.sock", "redis+sentinel://u@h/m", "rediss+cluster://u@h"]


@pytest.mark.parametrize("url", LONE)
def test_a_user_alone_is_for_who_gets_the_password_elsewhere(url: str) -> None:
    address = read_url(url, secret_elsewhere=True)
    assert (address.username, address.password) == ("u", None)
    assert "//***@" in str(address) and "u@" not in f"{address} {address!r}"
    assert read_url(address.without_secret("u"), secret_elsewhere=True) == address


@pytest.mark.parametrize(("url", "expected"), URLS)
def test_an_address_prints_as_a_url_that_reads_back(url: str, expected: Address) -> None:
    shown = read_url(str(expected))
    for part in ("endpoint", "db", "tls"):
        assert getattr(shown, part) == getattr(expected, part)


# -- secrets -------------------------------------------------------------------------------------

WORDS = ["Kanarie", "Zeisig", "Pirol", "Stieglitz"]  # in no host, option or message of ours
SPECIAL = st.text("/@?#:&=%[]{}.+ \\\"'\té1", min_size=0, max_size=3)
PASSWORDS = st.builds(
    lambda marks, words: "".join(a + b for a, b in zip(marks, words, strict=True)),
    st.lists(SPECIAL, min_size=4, max_size=4),
    st.permutations(WORDS),
)
AROUND = st.tuples(
    st.sampled_from(["redis://", "rediss://", "unix://", "http://", ""]),
    st.sampled_from(["", "u", "user%40x", "12"]),
    st.sampled_from(
        ["h", "h:1234", "h:1234/5", "h/x", "h:x", "[::1]:5", "[::1", "h?db=3", "h?ssl=3", "/a.sock"]
    ),
)


def everything_said_about(url: str) -> str:
    """Every text that reading a URL and using what came of it can leave somewhere."""
    try:
        address = read_url(url)
        address.ssl_context()
    except ConfigError as error:
        behind, kept = error.__context__, ""
        while behind is not None:  # tools show it, too, though Python's own traceback does not
            behind, kept = behind.__context__, f"{kept} {behind!r}"
        return "".join(traceback.format_exception(error)) + repr(error) + kept
    parts = msgspec.structs.asdict(address)
    return f"{address} {address!r} {address.password} {address.password!r} {parts} {hide(url)}"


@given(password=PASSWORDS, around=AROUND, raw=st.booleans())
def test_no_part_of_a_password_is_ever_shown(
    password: str, around: tuple[str, str, str], raw: bool
) -> None:
    scheme, user, place = around
    written = password if raw else quote(password, safe="")
    said = everything_said_about(f"{scheme}{user}:{written}@{place}")
    assert not [word for word in WORDS if word in said]


@given(password=PASSWORDS, around=AROUND, raw=st.booleans(), behind=st.sampled_from(["", ":"]))
def test_no_part_of_a_password_that_lacks_its_colon_is_ever_shown(
    password: str, around: tuple[str, str, str], raw: bool, behind: str
) -> None:
    scheme, _, place = around
    written = password.replace(":", "") if raw else quote(password, safe="")  # it would divide it
    said = everything_said_about(f"{scheme}{written}{behind}@{place}")
    assert not [word for word in WORDS if word in said]


@given(password=PASSWORDS)
def test_a_percent_encoded_password_arrives_whole(password: str) -> None:
    secret = read_url(f"redis://u:{quote(password, safe='')}@h").password
    assert secret is not None and secret.reveal() == password


@pytest.mark.parametrize("url", ["redis://:Kanarie", "redis://u:Kanarie/0", "u:Kanarie?x=1"])
def test_a_password_without_its_host_is_not_shown_either(url: str) -> None:
    assert "Kanarie" not in everything_said_about(url)


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://host?password=MARK", "redis://host?password=***"),
        ("redis://host?insecure=true&pass=MARK&x", "redis://host?insecure=true&pass=***&***"),
        ("redis+cluster://host?password=MARK", "redis+cluster://host?password=***"),
        ("unix:///redis.sock?db=2&auth=MARK", "unix:///redis.sock?db=2&auth=***"),
        ("redis://host/1x#MARK", "redis://host/1x#***"),
    ],
)
def test_an_option_that_we_do_not_know_may_be_a_password(url: str, seen: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_url(url)
    assert seen in str(caught.value) and "MARK" not in str(caught.value)


def test_a_secret_is_equal_to_itself_and_shown_to_who_asks_by_name() -> None:
    secret = Secret("Kanarie")
    assert secret == Secret("Kanarie") != Secret("Zeisig")
    assert hash(secret) == hash(Secret("Kanarie"))
    assert secret != "Kanarie"
    assert secret.reveal() == "Kanarie"
    assert f"{secret} {secret!r}" == "Secret(***) Secret(***)"
    assert not hasattr(secret, "__dict__")


def test_a_secret_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    address = read_url("redis://:Kanarie@h")  # not a secret
    logging.getLogger("test").warning("%s %r", address, address)
    assert "redis://:***@h:6379" in caplog.text
    assert "Kanarie" not in caplog.text


# -- TLS -----------------------------------------------------------------------------------------


def test_a_plain_address_has_no_tls_context() -> None:
    assert read_url("redis://h").ssl_context() is None


def test_tls_verifies_by_default() -> None:
    context = read_url("rediss://h").ssl_context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


def test_insecure_has_to_be_said() -> None:
    context = read_url("rediss://h?insecure=true").ssl_context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
def test_tls_files_that_cannot_be_loaded_are_named(option: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for file in (broken, tmp_path / "missing.pem"):
        address = read_url(f"rediss://:password@h?{option}={file}")
        with pytest.raises(ConfigError, match=r"cannot load the TLS files for rediss://:\*\*\*@h"):
            address.ssl_context()


def test_an_option_of_another_kind_of_address_is_refused() -> None:
    with pytest.raises(ArgumentError):
        read_url("unix:///a.sock?ssl_ca_certs=/a")


TOPOLOGIES = [
    "redis+sentinel://a:26379,b:1/m",
    "rediss+sentinel://a:26379/m/3",
    "redis+cluster://a:6379,[::1]:7000",
    "redis+cluster://[::1]:7000,a:6379,[::2]:6379",
    "rediss+cluster://a:6379",
]


def strict(url: str) -> SplitResult:
    """As newer Pythons do, on every one: brackets are around the whole host, or refused."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if "[" in host and not re.fullmatch(r"\[[^]]*\](:.*)?", host):
        raise ValueError
    return parts


@pytest.mark.parametrize("url", TOPOLOGIES)
def test_an_address_of_several_places_is_read_and_shown(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chasquimq.address.urlsplit", strict)
    address = read_url(url)
    assert str(address) == url
    assert address.endpoint == address.places[0]
    again = read_url(address.without_secret("user"), secret_elsewhere=True)
    assert again.username == "user"


def test_what_was_asked_for_survives_without_its_secret() -> None:
    url = (
        "rediss+sentinel://u:p@a,b:1/m%2Fn?ssl_ca_certs=/x&sentinel_password_env=W"  # not a secret
    )
    address = read_url(url)
    assert (address.service, address.sentinel_password_env) == ("m/n", "W")
    assert address.places == (Endpoint("a", 26379), Endpoint("b", 1))
    again = read_url(address.without_secret(address.username), secret_elsewhere=True)
    assert msgspec.structs.replace(again, password=address.password) == address
    assert "p" not in str(address).split("@")[0].removeprefix("rediss+sentinel://")


def test_the_key_of_a_queue_decides_in_a_cluster_only() -> None:
    assert read_url("redis://a").of("k") == read_url("redis://a")
    assert read_url("redis+cluster://a").of("k").key == "k"
