"""Render templates in a process of their own: Jinja's sandbox bounds neither their time nor their memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import msgspec

from spyweb.alerts.sender.wire import MessageTemplates

TIMEOUT_S = 2.0

COMMAND = (sys.executable, "-P", "-m", "spyweb.alerts.sender.worker.rendering")


class RenderingAsk(msgspec.Struct, frozen=True):
    templates: MessageTemplates
    facts: msgspec.Raw = msgspec.Raw(b"{}")
    is_check: bool = False  # they are compiled, and write nothing
    names: tuple[str, ...] = ()  # that they may use, where they are checked


class Rendered(msgspec.Struct, frozen=True, omit_defaults=True):
    texts: dict[str, str] = {}
    template: str = ""  # that has the problem; none: all of them together
    problem: str = ""


def render(templates: MessageTemplates, facts: bytes) -> Rendered:
    """Return the texts that the templates write, by name, or what is wrong with them."""
    return _ask(RenderingAsk(templates, msgspec.Raw(facts)))


def check_templates(templates: MessageTemplates, names: Sequence[str] = ()) -> Rendered:
    """Return what is wrong with templates, as far as that can be told without rendering them."""
    if not templates.title and not templates.body:
        return Rendered()
    return _ask(RenderingAsk(templates, is_check=True, names=tuple(names)))


def _ask(ask: RenderingAsk) -> Rendered:
    try:
        done = subprocess.run(
            COMMAND,
            input=msgspec.json.encode(ask),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Rendered)
    except subprocess.TimeoutExpired:
        return Rendered(problem=f"it takes longer than {TIMEOUT_S:g} s")
    except msgspec.DecodeError:
        return Rendered(problem="it takes more than it may have")
    except OSError as error:
        return Rendered(problem=f"it can't be rendered now: {error.strerror}")
