"""A process that renders the templates of one message: `python -m spyweb.alerts.sender.worker.rendering`."""

from __future__ import annotations

import re
import sys
from functools import partial

import msgspec

from spyweb.alerts.sender.worker.limits import RENDERING_CPU_S, RENDERING_MEMORY, limit_process
from spyweb.alerts.sender.worker.redaction import call_nobody
from spyweb.alerts.sender.worker.templates import Rendered, RenderingAsk
from spyweb.confined.parent import die_with_parent

LONGEST_TITLE = 500
LONGEST_BODY = 32_768
LONGEST_PROBLEM = 200

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~])")


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
        except MemoryError:
            return Rendered(problem=f"{name}: it takes more memory than it may have")
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            line = getattr(error, "lineno", None)
            place = f"{name}, line {line}" if line else name
            return Rendered(problem=f"{place}: {error}"[:LONGEST_PROBLEM])
    return Rendered(texts=written)


def finish(value: object, *, is_markdown: bool) -> object:
    """Escape what a template puts in, not what it writes itself."""
    if not isinstance(value, str):
        return value
    value = call_nobody(value)
    return _MARKDOWN.sub(r"\\\1", value) if is_markdown else value


def main() -> None:
    die_with_parent()
    limit_process(RENDERING_MEMORY, RENDERING_CPU_S)
    ask = msgspec.json.decode(sys.stdin.buffer.read(), type=RenderingAsk)
    sys.stdout.buffer.write(msgspec.json.encode(render_all(ask)))


if __name__ == "__main__":
    main()
