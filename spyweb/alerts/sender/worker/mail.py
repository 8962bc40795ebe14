"""Watch what Apprise does over SMTP: it tells no more than that a mail could not be handed over."""

from __future__ import annotations

import smtplib
from collections.abc import Callable
from functools import wraps
from typing import Any

from spyweb.alerts.sender.worker.adapter import SHOWN, current, describe

NO_TLS = "the server offers no TLS on this port"
WATCHED = ("connect", "starttls", "login", "sendmail")


def watch_mail() -> None:
    """Have the failures of every SMTP connection made from now on noted."""
    for name in WATCHED:
        setattr(smtplib.SMTP, name, noting_failures(getattr(smtplib.SMTP, name)))


def noting_failures(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def take(*args: Any, **more: Any) -> Any:
        try:
            return step(*args, **more)
        except OSError as error:  # as all of smtplib's are
            if met := current.get(None):
                met.note_failure(describe_mail(error))
            raise

    return take


def describe_mail(error: OSError) -> str:
    """Say what the server has answered, or what kind of failure it is."""
    match error:
        case smtplib.SMTPRecipientsRefused(recipients=refused) if refused:
            code, text = next(iter(refused.values()))
        case smtplib.SMTPResponseException(smtp_code=code, smtp_error=text):
            pass
        case smtplib.SMTPNotSupportedError():
            return NO_TLS if "STARTTLS" in str(error) else str(error)
        case _:
            return describe(error)
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return f"answered {code}: {' '.join(said.split())[:SHOWN]}"
