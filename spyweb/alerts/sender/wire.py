"""Messages between the daemon and the process that uses Apprise: each is a line of JSON on its stdin or stdout."""

from __future__ import annotations

import msgspec

LONGEST_LINE = 1 << 20  # bytes; a peer that sends more is broken


class MessageTemplates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user's texts, in Jinja; without one the built-in text is sent."""

    title: str = ""
    body: str = ""
    format: str = "text"  # of their output: text, markdown or html


class SendText(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """Ask to send a message to an address."""

    id: int
    url: str
    title: str
    body: str
    delivery: str  # the same for each attempt
    link: str = ""  # a page about it, where services have a field for one
    host: str = ""  # of the address, where it may be shown
    mood: str = "info"  # failure | success | warning | info: the colour that it is shown in
    templates: MessageTemplates = MessageTemplates()
    facts: msgspec.Raw = msgspec.Raw(b"{}")  # the values of the templates


class CheckAddress(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Ask to check an address and its templates, without sending anything."""

    id: int
    url: str
    templates: MessageTemplates = MessageTemplates()
    names: tuple[str, ...] = ()  # that the templates may use; empty: any


class HelperAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to either request.  No field holds a part of the address."""

    id: int
    ok: bool
    reason: str = ""
    status: int | None = None  # of the answer over HTTP
    retry_after: str = ""  # as the service wrote it
    is_address_wrong: bool = False  # Apprise can't use it
    template: str = ""  # the template that fails: title or body
    template_problem: str = ""  # the built-in text was sent instead


HelperRequest = SendText | CheckAddress

encode_line = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(SendText | CheckAddress).decode
decode_answer = msgspec.json.Decoder(HelperAnswer).decode
