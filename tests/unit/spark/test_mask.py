"""Redaction: what stands under a key that is called a secret never shows, however deep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chasquimq.errors import ConfigError
from chasquimq.spark.pipelines.mask import DEFAULT_PATTERN, Redaction

CANARY = "c4n,ary"
redaction = Redaction()

PAYLOADS: list[Any] = [
    {"password": CANARY},
    {"user": {"credentials": {"login": "bob", "word": CANARY}}},
    [{"a": [{"api_key": CANARY}]}],
    {"tokens": [CANARY, {"x": CANARY}, [CANARY]]},
    {"apiKey": CANARY, "API-KEY": CANARY, "x-api-key": CANARY, "Authorization": f"Bearer {CANARY}"},
    {"cardNumber": CANARY, "card": {"number": CANARY}, "IBAN": CANARY, "cvv": 1},
    {'pass\\"word': CANARY, 'the "secret"': CANARY},
    {"headers": [["Authorization", CANARY], ["Accept", "*"]]},
    {"headers": [{"name": "Cookie", "value": CANARY}, {"name": "Accept", "value": "*"}]},
    {"body": json.dumps({"password": CANARY, "n": 1})},
    {"body": json.dumps({"inner": json.dumps({"token": CANARY})})},
    {"body": json.dumps({"inner": json.dumps({"token": CANARY})})[:-2]},  # no JSON any more
    {"line": f"login with password='{CANARY}' failed"},
    {"line": f'secret => "{CANARY}"'},
    {"line": f'password: {{"a": "{CANARY}"}}'},
    {"line": f"token: ['x', '{CANARY}']"},
    {"url": "redis://bob:c4nary@host/0"},  # not a secret
    {"x" * 5_000: 1, "password": CANARY},
    {"padding": "x" * 100_000, "line": f"password={CANARY}"},
    {"text": "y" * 1_990 + f' "password": "{CANARY}"'},
    {"auth": None, "session_id": CANARY, "p": {"q": {"r": {"client_secret": CANARY}}}},
    {f"password={CANARY}": 1},
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda one: json.dumps(one)[:60])
def test_a_secret_never_shows(payload: Any) -> None:
    for text in (json.dumps(payload), json.dumps(payload, ensure_ascii=False, indent=2)):
        shown = redaction.payload(text)
        assert shown is not None
        assert "c4n" not in shown and "ary" not in shown
        assert "***" in shown or len(shown) == 2_000


keys = st.sampled_from(["password", "userToken", "x_secret", "cardNo", "Set-Cookie", "pin"])
plain = st.text(max_size=8).filter(lambda one: CANARY not in one)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
)


@given(
    secret_key=keys,
    secret=st.recursive(
        st.just(CANARY),
        lambda inner: (
            st.lists(inner, min_size=1, max_size=2)
            | st.dictionaries(plain, inner, min_size=1, max_size=2)
        ),
    ),
    around=st.lists(plain | st.just(None), max_size=5),
    beside=values,
)
def test_a_secret_never_shows_at_any_depth(
    secret_key: str, secret: Any, around: list[str | None], beside: Any
) -> None:
    payload: Any = {"beside": beside, secret_key: secret}
    for key in around:
        payload = [beside, payload] if key is None else {key: payload}
    shown = redaction.payload(json.dumps(payload))
    assert shown is not None and CANARY not in shown


def test_what_is_no_secret_is_shown_as_it_is() -> None:
    payload = {"order": 7, "author": "bob", "items": [{"keyboard": 1.5}], "note": "a: b", "x": None}
    assert redaction.payload(json.dumps(payload)) == json.dumps(payload, separators=(",", ":"))
    assert redaction.payload(None) is None
    assert redaction.payload("7") == "7"
    assert redaction.text("order 7 has no lines: 3 > 2") == "order 7 has no lines: 3 > 2"


def test_what_is_no_json_is_not_shown() -> None:
    assert redaction.payload('{"password": "c4n') == "***"
    assert redaction.payload("[" * 100_000) == "***"


def test_large_payloads_are_cut_after_their_secrets_are_hidden() -> None:
    shown = Redaction(widest=20).payload(json.dumps({"secret": CANARY, "rest": "x" * 100}))
    assert shown == '{"secret":"***","re…'


def test_a_url_in_which_a_payload_is_cut_shows_no_half_of_its_password() -> None:
    for beside in range(60):
        text = "x" * (100 - beside) + " redis://user:" + CANARY * 5 + "@host"
        shown = Redaction(widest=100).payload(json.dumps({"a": text}))
        assert shown is not None and CANARY[:3] not in shown


def test_half_a_character_is_spelled_out() -> None:
    assert redaction.payload('{"a": "\\ud800"}') == '{"a":"\\ud800"}'


ERRORS = {
    "login failed for password=hunter2": "login failed for password=***",
    "password = 'hunter 2', user=bob": "password = ***, user=bob",
    'bad reply {"api_key": "hunter2", "a": 1}': 'bad reply {"api_key": ***, "a": 1}',
    "GET /x?token=hunter2&page=3": "GET /x?token=***",
    "Authorization: Basic aHVudGVyMg==": "Authorization: ***",
    "sent 'Bearer hunter2hunter2' twice": "sent 'Bearer ***' twice",
    "no redis://bob:hunter2@host:1/0": "no redis://bob:***@host:1/0",  # not a secret
    "PASSWORD: correct horse hunter2, retry": "PASSWORD: ***, retry",
    "no such user": "no such user",
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_redacted_where_they_name_a_secret(error: str) -> None:
    assert redaction.text(error) == ERRORS[error]


def test_a_pattern_of_ones_own() -> None:
    own = Redaction("order|^x$")
    assert own.payload('{"order_id": 7, "x": 1, "xy": 2, "password": "p"}') == (
        '{"order_id":"***","x":"***","xy":2,"password":"p"}'
    )
    assert own.text("order=7, password=p") == "order=***, password=***"  # which are never shown
    assert Redaction(f"{DEFAULT_PATTERN}|email").payload('{"email": 1, "pwd": 2}') == (
        '{"email":"***","pwd":"***"}'
    )
    for wrong in ("(", "*", None):
        with pytest.raises(ConfigError, match="redact"):
            Redaction(wrong)  # type: ignore[arg-type]


@pytest.mark.timeout(20)
def test_no_text_takes_for_ever() -> None:
    for text in (
        "a" * 200_000,
        "password" * 20_000,
        "password\\" * 20_000,
        "token" + " " * 200_000,
    ):
        redaction.payload(json.dumps({"a": text, "b": [text]}))
        redaction.text(text[:5_000])
