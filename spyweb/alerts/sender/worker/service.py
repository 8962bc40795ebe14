"""Send by Apprise, and check its addresses: the only file that says apprise."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from difflib import get_close_matches
from email.utils import make_msgid
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from apprise import Apprise, AppriseAsset, NotifyFormat, NotifyType, OverflowMode, PersistentStoreMode
from apprise.manager_plugins import NotificationManager
from msgspec.structs import replace

from spyweb.alerts.sender.wire import HelperAnswer, HelperRequest, SendText
from spyweb.alerts.sender.worker.adapter import Met, current, watch_mail, watch_requests
from spyweb.alerts.sender.worker.rendering import RenderingAsk, render_apart
from spyweb.outbox.redaction import call_nobody, escape_markdown, hide_address, may_repeat_login

NO_SERVICE = "not an address of a service that Apprise knows"

READ_AS_MARKDOWN = frozenset({"discord"})  # services that format plain text too, and know backslashes

_SCHEME = re.compile(r"[a-z0-9]{2,20}")


class NoteLog(logging.Handler):
    """Keeps the last line that Apprise logs about a message; it goes nowhere else."""

    def emit(self, record: logging.LogRecord) -> None:
        met = current.get(None)
        if met is not None:
            met.log = record.getMessage()


class UnusableAddress(Exception):
    """Raised with the reason why Apprise can't use an address."""


class AppriseServices:
    def __init__(self) -> None:
        from apprise.plugins.email import base as email_service  # slow to import

        watch_requests()
        watch_mail()
        # No log of Apprise leaves this process: below the level warning it holds secrets.
        logging.raiseExceptions = False
        logging.getLogger().handlers[:] = [logging.NullHandler()]
        own = logging.getLogger("apprise")
        own.handlers[:] = [NoteLog()]
        own.setLevel(logging.WARNING)
        own.propagate = False
        email_service.make_msgid = message_id  # type: ignore[attr-defined]
        self._asset = AppriseAsset(
            app_id="spyweb",
            app_desc="spyweb",
            app_url="",
            image_url_logo="",
            image_url_mask="",
            image_path_mask="",
            storage_mode=PersistentStoreMode.MEMORY,
            async_mode=False,  # in this thread: the daemon limits concurrency
            http_redirects=False,
            service_timeout=0,  # in this thread as well; the daemon watches the time
            allow_templates=False,
            secure_logging=True,
        )

    def answer(self, ask: HelperRequest) -> HelperAnswer:
        """Send a message, or check an address and its templates."""
        met = Met(ask.delivery if isinstance(ask, SendText) else "")
        current.set(met)
        try:
            service = self._service(with_defaults(ask) if isinstance(ask, SendText) else ask.url)
        except UnusableAddress as error:
            return HelperAnswer(id=ask.id, ok=False, reason=str(error), is_address_wrong=True)
        if isinstance(ask, SendText):
            return self._send(ask, service, met)
        found = render_apart(RenderingAsk(ask.templates, is_check=True, names=ask.names))
        return HelperAnswer(id=ask.id, ok=not found.problem, template=found.template, template_problem=found.problem)

    def _send(self, ask: SendText, service: Any, met: Met) -> HelperAnswer:
        title, body, written = call_nobody(ask.title), call_nobody(ask.body), "text"
        rendered = render_apart(RenderingAsk(ask.templates, ask.facts))
        if rendered.problem:
            which = f"{rendered.template}: " if rendered.template else ""
            body = f"{body}\n(The template of this channel fails: {call_nobody(which + rendered.problem)})"
        elif rendered.texts:
            written = ask.templates.format
            title, body = rendered.texts.get("title", title), rendered.texts.get("body", body)
        if written == "text" and schemes_of(service) & READ_AS_MARKDOWN:
            title, body = escape_markdown(title), escape_markdown(body)
        one = Apprise(asset=self._asset)
        one.add(service)
        # Apprise's own notify converts, and so escapes, the text; a service's notify does not.
        arrived = one.notify(
            body=body, title=title, notify_type=NotifyType(ask.mood), body_format=NotifyFormat(written)
        )
        answer = HelperAnswer(
            id=ask.id, ok=bool(arrived), template=rendered.template, template_problem=rendered.problem
        )
        if arrived:
            return answer
        reason = met.reason or met.log or "not delivered"
        if met.answered and not may_repeat_login(ask.url):
            reason += f": {met.answered}"
        reason, retry_after = hide_address(reason, ask.url, ask.host), met.retry_after[:100]
        return replace(answer, reason=reason, status=met.status, retry_after=retry_after)

    def _service(self, url: str) -> Any:
        """Return the service of an address.  Raises UnusableAddress."""
        check_scheme(url)
        try:
            service = Apprise.instantiate(url, asset=self._asset, suppress_exceptions=False)
        except Exception as error:  # noqa: BLE001 - its many services raise any error about an address
            raise UnusableAddress(hide_address(str(error) or NO_SERVICE, url)) from None
        if service is None:
            met = current.get()
            if url.lower().startswith(("http://", "https://")):
                raise UnusableAddress(f"{NO_SERVICE}; to send JSON there, write webhook instead of url")
            raise UnusableAddress(hide_address(met.log, url) or NO_SERVICE)
        if "overflow=" not in url:
            service.overflow_mode = OverflowMode.TRUNCATE  # the default sends too much, which services refuse for ever
        return service


class UrgencyParameters(NamedTuple):
    """The parameters of a service's address for the urgency of a message, its link, and its tag."""

    urgency: str = ""
    values: tuple[str, str, str] = ("moderate", "normal", "high")  # for what recovered; has failed; is critical
    link: str = ""
    tag: str = ""


PARAMETERS: Mapping[str, UrgencyParameters] = {
    "ntfy": UrgencyParameters("priority", ("low", "default", "high"), "click", "tags"),
    "pover": UrgencyParameters("priority", link="url"),
    "gotify": UrgencyParameters("priority"),
    "prowl": UrgencyParameters("priority"),
    "join": UrgencyParameters("priority"),
    "psafer": UrgencyParameters("priority", ("-1", "0", "1")),
    "opsgenie": UrgencyParameters("priority"),
    "bark": UrgencyParameters("level", ("passive", "active", "timeSensitive"), "click"),
    "lametric": UrgencyParameters("priority", ("info", "warning", "critical")),
    "tgram": UrgencyParameters("silent", ("yes", "no", "no")),
    "nctalk": UrgencyParameters("silent", ("yes", "no", "no")),
    "pagerduty": UrgencyParameters(link="click"),
}
# The urgency of each mood, as the place of its value, and its tag: an emoji of ntfy.
MOODS: Mapping[str, tuple[int, str]] = {
    "success": (0, "white_check_mark"),
    "info": (1, "information_source"),
    "warning": (1, "warning"),
    "failure": (2, "rotating_light"),
}


def with_defaults(ask: SendText) -> str:
    """Return the address of a message with parameters for its urgency, link and tag; those of the user win."""
    scheme = ask.url.partition("://")[0].lower()
    known = PARAMETERS.get(scheme) or PARAMETERS.get(scheme.removesuffix("s"))
    if known is None:
        return ask.url
    place, tag = MOODS[ask.mood]
    query = ask.url.partition("?")[2]
    given = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    wanted = ((known.urgency, known.values[place]), (known.link, ask.link), (known.tag, tag))
    added = urlencode({name: value for name, value in wanted if name and value and not given & {name, f"x{name}"}})
    return f"{ask.url}{'&' if '?' in ask.url else '?'}{added}" if added else ask.url


def schemes_of(service: Any) -> set[str]:
    """Return the schemes of a service's addresses."""
    schemes = set[str]()
    for each in (service.protocol, service.secure_protocol):
        schemes |= {each} if isinstance(each, str) else set(each or ())
    return schemes


def check_scheme(url: str) -> None:
    """Raise UnusableAddress where the scheme of an address is no service, or a service that lacks a package."""
    services: Any = NotificationManager()  # type: ignore[no-untyped-call]
    known, scheme = services.schemas(), url.partition("://")[0].lower()
    if "://" not in url or not _SCHEME.fullmatch(scheme):
        raise UnusableAddress(f"expected an address of a service, such as ntfy://…: {NO_SERVICE}")
    if scheme in ("http", "https"):  # Apprise knows some services by the host of such an address
        return
    if scheme not in known:
        near = get_close_matches(scheme, known, 1)
        raise UnusableAddress(f'no service "{scheme}"' + (f', did you mean "{near[0]}"?' if near else ""))
    needed = services[scheme].requirements.get("packages_required")
    if not services[scheme].enabled:
        packages = ", ".join([needed] if isinstance(needed, str) else [str(each) for each in needed or ()])
        raise UnusableAddress(
            f"{scheme} is not available here" + (f": it needs the package {packages}" if packages else "")
        )


def message_id(*args: Any, **more: Any) -> str:
    """Return the id of a mail: the same for each attempt."""
    made = make_msgid(*args, **more)
    met = current.get(None)
    return f"<{met.delivery}@{made.partition('@')[2]}" if met and met.delivery else made
