"""What is said of a request that failed."""

from __future__ import annotations

import smtplib
import socket
import ssl
from http.client import RemoteDisconnected

import pytest
import requests

from spyweb.alerts.sender.worker.adapter import Met, current, describe, describe_mail, noting_failures, retry_after_in


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("https://secret.example/token"), "x.org can't be reached: ValueError"),
        (caused(ValueError("token"), socket.gaierror(-2, "Name or service not known")), "the host x.org was not found"),
        (caused(ValueError("token"), ConnectionRefusedError(111, "token")), "x.org refused the connection"),
        (ValueError(OSError(113, "No route to host")), "x.org can't be reached: No route to host"),
        (caused(requests.ConnectTimeout("token"), TimeoutError()), "x.org did not answer in time"),
        (ssl.SSLError(1, "wrong version number"), "x.org failed the TLS handshake: wrong version number"),
        (caused(requests.exceptions.ProxyError("token"), ConnectionRefusedError(111, "")), "the proxy of the daemon's"),
        (caused(ValueError(), RemoteDisconnected("token")), "x.org closed the connection"),
    ],
)
def test_an_error_names_the_host_and_what_failed_and_not_its_own_text(error: BaseException, said: str) -> None:
    assert describe(error, "x.org").startswith(said)
    assert "token" not in describe(error, "x.org")


def test_errors_that_name_each_other_are_described() -> None:
    error = ValueError()
    error.__cause__ = caused(KeyError(), error)
    assert describe(error, "x.org").startswith("x.org can't be reached")


def test_the_first_failure_of_a_message_counts() -> None:
    met = Met()
    met.note_failure("answered 404")
    met.note_failure("answered 500")
    assert met.reason == "answered 404"


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (b'{"ok":false,"error_code":429,"parameters":{"retry_after":7}}', "7"),  # Telegram
        (b'{"message":"You are being rate limited.","retry_after":0.3,"global":false}', "1"),  # Discord
        (b'{"retry_after":"soon"}', ""),
        (b'{"retry_after":1e999}', ""),
        (b'{"parameters":[]}', ""),
        (b"[]", ""),
        (b"<html>", ""),
        (b"[" * 60_000, ""),
        (b"", ""),
    ],
)
def test_how_long_to_wait_may_stand_in_the_answer_itself(body: bytes, seconds: str) -> None:
    assert retry_after_in(body) == seconds


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (smtplib.SMTPAuthenticationError(535, b"5.7.8 no such\r\n user"), "answered 535: 5.7.8 no such user"),
        (smtplib.SMTPRecipientsRefused({"me@x": (550, b"unknown"), "b@x": (551, b"no")}), "answered 550: unknown"),
        (smtplib.SMTPSenderRefused(553, b"not yours", "a@x"), "answered 553: not yours"),
        (smtplib.SMTPNotSupportedError("STARTTLS extension not supported by server."), "the server offers no TLS"),
        (smtplib.SMTPNotSupportedError("No suitable authentication method found."), "No suitable authentication"),
        (ConnectionRefusedError(111, "Connection refused"), "x.org refused the connection"),
        (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), "x.org closed the connection"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "the certificate of x.org is not trusted"),
        (TimeoutError("timed out"), "x.org did not answer in time"),
    ],
)
def test_a_failure_has_its_own_words(error: OSError, said: str) -> None:
    assert said in describe_mail(error, "x.org")


def test_the_first_failure_of_a_mail_is_noted_and_raised() -> None:
    def fail(code: int) -> None:
        raise smtplib.SMTPResponseException(code, b"no")

    current.set(met := Met())
    for code in (535, 550):
        with pytest.raises(smtplib.SMTPResponseException):
            noting_failures(fail)(code)
    assert met.reason == "answered 535: no"
    assert noting_failures(lambda: 7)() == 7
