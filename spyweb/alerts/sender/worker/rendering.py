"""Render the templates of one message in a separate process: `python -m spyweb.alerts.sender.worker.rendering`.

Jinja's sandbox bounds neither their time nor their memory.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from spyweb.alerts.sender.wire import MessageTemplates
from spyweb.alerts.sender.worker.limits import MIB, limit_process
from spyweb.confined.parent import die_with_parent
from spyweb.outbox.redaction import call_nobody, escape_markdown

if TYPE_CHECKING:
    from jinja2 import Environment

LONGEST_TITLE = 500
LONGEST_BODY = 32_768
LONGEST_PROBLEM = 200
TIMEOUT_S = 2.0

COMMAND = (sys.executable, "-P", "-m", "spyweb.alerts.sender.worker.rendering")


class RenderingAsk(msgspec.Struct, frozen=True):
    templates: MessageTemplates
    facts: msgspec.Raw = msgspec.Raw(b"{}")
    is_check: bool = False  # they are only compiled
    names: tuple[str, ...] = ()  # that they may use, in a check


class Rendered(msgspec.Struct, frozen=True, omit_defaults=True):
    texts: dict[str, str] = {}
    template: str = ""  # the one with the problem; "": all together
    problem: str = ""


def render_all(ask: RenderingAsk) -> Rendered:
    """Render the templates, or only compile them."""
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=ask.templates.format == "html",
        finalize=partial(finish, is_markdown=ask.templates.format == "markdown"),
    )
    texts = {"title": ask.templates.title, "body": ask.templates.body}
    limits = {"title": LONGEST_TITLE, "body": LONGEST_BODY}
    written = {}
    for name, text in texts.items():
        if not text:
            continue
        try:
            template = environment.from_string(text)
            if not ask.is_check:
                facts = msgspec.json.decode(ask.facts, type=dict[str, object])
                written[name] = template.render(facts)[: limits[name]]
            elif unknown := unknown_name(environment, text, ask.names):
                return Rendered(template=name, problem=unknown)
        except MemoryError:
            return Rendered(template=name, problem="it takes more memory than it may have")
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            line = getattr(error, "lineno", None)
            place = f"in its line {line}: " if line else ""
            return Rendered(template=name, problem=f"{place}{error}"[:LONGEST_PROBLEM])
    if not written.get("body", "x").strip():  # services refuse an empty message for ever
        return Rendered(template="body", problem="it writes nothing")
    return Rendered(texts=written)


def unknown_name(environment: Environment, text: str, names: Sequence[str]) -> str:
    """Return the problem of a template that uses a name which no message has; "" where there is none."""
    from jinja2.meta import find_undeclared_variables

    unknown = min(find_undeclared_variables(environment.parse(text)).difference(names), default=None)
    if unknown is None or not names:
        return ""
    near = get_close_matches(unknown, names, 1)
    return f"no message has {unknown[:50]!r}" + (f", did you mean {near[0]!r}?" if near else "")


def finish(value: object, *, is_markdown: bool) -> object:
    """Escape values that a template inserts, not the template's own text."""
    if not isinstance(value, str):
        return value
    value = call_nobody(value)
    return escape_markdown(value) if is_markdown else value


def render_apart(ask: RenderingAsk) -> Rendered:
    """Return the texts that the templates write, by name, or their problem."""
    if not ask.templates.title and not ask.templates.body:
        return Rendered()
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


def main() -> None:
    die_with_parent()
    limit_process(96 * MIB, cpu_s=2)
    ask = msgspec.json.decode(sys.stdin.buffer.read(), type=RenderingAsk)
    sys.stdout.buffer.write(msgspec.json.encode(render_all(ask)))


if __name__ == "__main__":
    main()
