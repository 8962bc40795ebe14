"""Watch what Apprise does over HTTP and SMTP: itself it reports only whether a message was delivered.

Each session of `requests` gets an adapter that records the result of a request, bounds the answer, follows no redirect,
and raises where a service is busy: some services in Apprise would otherwise sleep for as long as the answer says.
"""

from __future__ import annotations

import json
import math
import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from http.client import RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import NameResolutionError

LARGEST_ANSWER = 64 << 10  # bytes
LONGEST_ANSWER_S = 15.0
SHOWN = 200  # characters of an answer
TOO_MANY_REQUESTS = 429


class Met:
    """The result of one message's requests; the first failure counts."""

    def __init__(self, delivery: str = "") -> None:
        self.delivery = delivery
        self.reason = ""
        self.answered = ""  # the beginning of the service's answer
        self.status: int | None = None
        self.retry_after = ""
        self.log = ""  # what Apprise logged last

    def note_failure(self, reason: str, answer: requests.Response | None = None) -> None:
        if self.reason:
            return
        self.reason = reason
        if answer is not None:
            self.status = answer.status_code
            self.retry_after = answer.headers.get("Retry-After", "") or retry_after_in(answer.content)
            self.answered = answer.content[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN]


current: ContextVar[Met] = ContextVar("current")


def retry_after_in(body: bytes) -> str:
    """Return the seconds to wait where only the answer's JSON says them, as with Telegram; else ""."""
    try:
        said = json.loads(body)
        seconds = said.get("retry_after") or said["parameters"]["retry_after"]
        return str(math.ceil(float(seconds)))
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return ""


class ServiceBusy(requests.RequestException):
    """Raised for an answer that asks to wait: the outbox waits, not a thread."""


class WatchedAdapter(HTTPAdapter):
    def send(self, request: requests.PreparedRequest, *args: Any, **more: Any) -> requests.Response:
        met = current.get(None) or Met()
        try:
            answer = super().send(request, *args, **{**more, "stream": True})
            ends, body = time.monotonic() + LONGEST_ANSWER_S, bytearray()
            for chunk in answer.iter_content(8192):  # only its beginning is of use
                body += chunk
                if len(body) > LARGEST_ANSWER or time.monotonic() > ends:
                    answer.close()
                    break
        except requests.RequestException as error:
            met.note_failure(describe(error, urlsplit(request.url or "").netloc.rpartition("@")[2]))
            raise
        answer._content = bytes(body[:LARGEST_ANSWER])
        answer._content_consumed = True
        if not 200 <= answer.status_code < 300:
            met.note_failure(f"answered {answer.status_code}", answer)
        if answer.status_code == TOO_MANY_REQUESTS:
            raise ServiceBusy
        return answer


def describe(error: BaseException, host: str) -> str:
    """Return what failed at which host, in words: the text of such an error may repeat the address."""
    found = list(causes(error))
    for kinds, words in FAILURES:
        if any(isinstance(each, kinds) for each in found):
            return words.format(host=host)
    system = next((each for each in found if isinstance(each, OSError) and each.errno and each.strerror), None)
    if isinstance(system, ssl.SSLError):
        return f"{host} failed the TLS handshake: {system.strerror}"
    return f"{host} can't be reached: {system.strerror if system else type(found[-1]).__name__}"


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, which may name each other."""
    seen: BaseException | None = error
    for _ in range(10):
        if seen is None:
            return
        yield seen
        nested = next((each for each in seen.args if isinstance(each, BaseException)), None)
        reason = getattr(seen, "reason", None)
        seen = seen.__cause__ or nested or (reason if isinstance(reason, BaseException) else seen.__context__)


# The first kind that an error or one of its causes has.
FAILURES: tuple[tuple[tuple[type[BaseException], ...], str], ...] = (
    ((requests.exceptions.ProxyError,), "the proxy of the daemon's environment can't be reached"),
    ((socket.gaierror, NameResolutionError), "the host {host} was not found"),
    ((ConnectionRefusedError,), "{host} refused the connection"),
    ((TimeoutError, requests.exceptions.Timeout), "{host} did not answer in time"),
    ((ssl.SSLCertVerificationError,), "the certificate of {host} is not trusted"),
    ((ConnectionResetError, RemoteDisconnected, smtplib.SMTPServerDisconnected), "{host} closed the connection"),
)


def watch_requests() -> None:
    """Make every new session use that adapter."""
    made = requests.Session.__init__

    def make(session: requests.Session) -> None:
        made(session)
        session.mount("https://", WatchedAdapter())
        session.mount("http://", WatchedAdapter())
        session.max_redirects = 0

    requests.Session.__init__ = make  # type: ignore[method-assign, assignment]


def watch_mail() -> None:
    """Record the failures of every new SMTP connection."""
    for name in ("connect", "starttls", "login", "sendmail"):
        setattr(smtplib.SMTP, name, noting_failures(getattr(smtplib.SMTP, name)))


def noting_failures(step: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(step)
    def take(*args: Any, **more: Any) -> Any:
        try:
            return step(*args, **more)
        except OSError as error:  # the base of all errors of smtplib
            if met := current.get(None):
                host = getattr(args[0], "_host", "") if args else ""
                met.note_failure(describe_mail(error, str(host) or "the mail server"))
            raise

    return take


def describe_mail(error: OSError, host: str) -> str:
    """Return the server's answer, or the kind of failure, in words."""
    match error:
        case smtplib.SMTPRecipientsRefused(recipients=refused) if refused:
            code, text = next(iter(refused.values()))
        case smtplib.SMTPResponseException(smtp_code=code, smtp_error=text):
            pass
        case smtplib.SMTPNotSupportedError():
            return "the server offers no TLS on this port" if "STARTTLS" in str(error) else str(error)
        case _:
            return describe(error, host)
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return f"answered {code}: {' '.join(said.split())[:SHOWN]}"
