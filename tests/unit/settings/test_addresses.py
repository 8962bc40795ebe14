"""Addresses that may be secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.settings.addresses import (
    address_template,
    expand,
    is_on_this_machine,
    missing_variables,
    read_secret,
    secret_place,
)

EXPECTED = "^expected an address: https:// or http://, a host, and a port up to 65535 if any$"


def test_variables_are_put_in_when_the_address_is_used() -> None:
    address = address_template(" https://${HOST}/${KEY}/x ")
    assert address == "https://${HOST}/${KEY}/x"
    assert expand(address, {"HOST": "a.example", "KEY": " x\n"}) == "https://a.example/x/x"
    assert missing_variables(address, {"HOST": "a", "KEY": " "}) == ["KEY"]
    assert expand(address_template("${URL}"), {"URL": "https://x/"}) == "https://x/"
    assert address_template("") == ""


def test_one_that_is_not_set_is_named_and_nothing_of_the_others() -> None:
    with pytest.raises(ValueError, match=r"^the variable KEY is not set$"):
        expand("https://${HOST}/${KEY}", {"HOST": "secret"})


@pytest.mark.parametrize("value", ["https://", "ftp://x/", "https://x/a b", "x", "https://[::1", "https://x:99999/"])
def test_what_is_no_web_address_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match=EXPECTED):
        address_template(value)
    with pytest.raises(ValueError, match=EXPECTED):
        expand("${URL}", {"URL": value})


def test_a_secret_is_read_from_the_environment_or_a_credential(tmp_path: Path) -> None:
    (tmp_path / "github").write_text("s3cret\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path), "HOOK": " key "}
    assert read_secret("env:HOOK", environ) == b"key"
    assert read_secret("credential:github", environ) == b"s3cret"
    assert read_secret("credential:absent", environ) == b""
    assert read_secret("credential:github", {}) == b""


@pytest.mark.parametrize("place", ["env:HOOK", "credential:github"])
def test_a_setting_names_a_place(place: str) -> None:
    assert secret_place(place) == place


@pytest.mark.parametrize("given", ["hunter2", "env:", "env:A\n", "credential:../x"])
def test_a_secret_itself_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(ValueError, match="not the secret itself") as refused:
        secret_place(given)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/ping/x", True),
        ("http://127.0.0.1/x", True),
        ("http://[::1]:3001/api/push/x", True),
        ("http://0.0.0.0/x", True),
        ("http://kuma.localhost/x", True),
        ("https://hc-ping.com/x", False),
        ("http://192.168.1.5/x", False),
        ("http://localhost.example.org/", False),
    ],
)
def test_an_address_of_this_machine_is_recognised(url: str, here: bool) -> None:
    assert is_on_this_machine(url) is here
