"""What is said of a mail that was not taken."""

from __future__ import annotations

import smtplib
import ssl

import pytest

from spyweb.alerts.sender.worker.adapter import Met, current
from spyweb.alerts.sender.worker.mail import describe_mail, noting_failures


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (smtplib.SMTPAuthenticationError(535, b"5.7.8 no such\r\n user"), "answered 535: 5.7.8 no such user"),
        (smtplib.SMTPRecipientsRefused({"me@x": (550, b"unknown"), "b@x": (551, b"no")}), "answered 550: unknown"),
        (smtplib.SMTPSenderRefused(553, b"not yours", "a@x"), "answered 553: not yours"),
        (
            smtplib.SMTPNotSupportedError("STARTTLS extension not supported by server."),
            "the server offers no TLS",
        ),
        (smtplib.SMTPNotSupportedError("No suitable authentication method found."), "No suitable authentication"),
        (ConnectionRefusedError(111, "Connection refused"), "ConnectionRefusedError: Connection refused"),
        (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), "SMTPServerDisconnected"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "certificate verify failed"),
        (TimeoutError("timed out"), "TimeoutError"),
    ],
)
def test_a_failure_has_its_own_words(error: OSError, said: str) -> None:
    assert said in describe_mail(error)


def test_the_first_failure_of_a_mail_is_noted_and_raised() -> None:
    def fail(code: int) -> None:
        raise smtplib.SMTPResponseException(code, b"no")

    current.set(met := Met())
    for code in (535, 550):
        with pytest.raises(smtplib.SMTPResponseException):
            noting_failures(fail)(code)
    assert met.reason == "answered 535: no"
    assert noting_failures(lambda: 7)() == 7
