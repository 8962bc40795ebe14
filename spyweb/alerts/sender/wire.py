"""Messages between the daemon and the process that speaks to Apprise: each is a line of JSON on its stdin or stdout."""

from __future__ import annotations

import msgspec

LONGEST_LINE = 1 << 20  # bytes; a peer that sends more is broken


class MessageTemplates(msgspec.Struct, frozen=True, omit_defaults=True):
    """Texts of the user's own, in Jinja; without one the built-in text is sent."""

    title: str = ""
    body: str = ""
    format: str = "text"  # what they write: text, markdown or html


class SendText(msgspec.Struct, frozen=True, kw_only=True, tag="send"):
    """Ask to send a message to an address."""

    id: int
    url: str
    title: str
    body: str
    delivery: str  # the same however often it is sent
    mood: str = "info"  # failure | success | warning | info: the colour that it is shown in
    templates: MessageTemplates = MessageTemplates()
    facts: msgspec.Raw = msgspec.Raw(b"{}")  # what the templates may name


class CheckAddress(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Ask what is wrong with an address and its templates, without sending anything."""

    id: int
    url: str
    templates: MessageTemplates = MessageTemplates()
    names: tuple[str, ...] = ()  # that the templates may use; none: any


class HelperAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to either.  No part of it holds a part of the address."""

    id: int
    ok: bool
    reason: str = ""
    status: int | None = None  # of the answer over HTTP
    retry_after: str = ""  # as the service has written it
    is_address_wrong: bool = False  # Apprise can't use it
    template: str = ""  # the name of the one that fails: title or body
    template_problem: str = ""  # the built-in text was sent instead


HelperRequest = SendText | CheckAddress

encode_line = msgspec.json.Encoder().encode
decode_request = msgspec.json.Decoder(SendText | CheckAddress).decode
decode_answer = msgspec.json.Decoder(HelperAnswer).decode
