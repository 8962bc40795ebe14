"""Texts that templates write."""

from __future__ import annotations

import msgspec
import pytest

from spyweb.alerts.sender.wire import MessageTemplates
from spyweb.alerts.sender.worker.rendering import LONGEST_BODY, LONGEST_TITLE, Rendered, RenderingAsk, render_all

FACTS = msgspec.Raw(b'{"kind":"opened","items":[{"text":"<b> *x*"},{"text":"y"}],"count":2}')


def rendered(*, is_check: bool = False, **templates: str) -> Rendered:
    return render_all(RenderingAsk(MessageTemplates(**templates), FACTS, is_check))


def test_a_template_names_facts_and_one_that_is_not_there_stays_as_it_is() -> None:
    found = rendered(body="{% for item in items %}{{ item.text }};{% endfor %}{{ count }}")
    assert found == Rendered(texts={"body": "<b> *x*;y;2"})


@pytest.mark.parametrize(
    ("written", "text"), [("text", "_<b> *x*_"), ("html", "_&lt;b&gt; *x*_"), ("markdown", r"_\<b\> \*x\*_")]
)
def test_facts_are_escaped_for_the_format(written: str, text: str) -> None:
    assert rendered(body="_{{ items[0].text }}_", format=written).texts == {"body": text}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{{ nope }}", "'nope' is undefined"),
        ("\n{% if %}", "in its line 2: Expected an expression"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ items.append(1) }}", "is unsafe"),
        ("{{ kind.__class__ }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% for item in items if item.text == 'z' %}{{ item.text }}{% endfor %}\n", "it writes nothing"),
    ],
)
def test_what_fails_is_a_problem(body: str, problem: str) -> None:
    found = rendered(body=body)
    assert problem in found.problem
    assert (found.template, found.texts) == ("body", {})


def test_a_check_needs_no_facts() -> None:
    assert rendered(title="{{ nope }}", is_check=True) == Rendered()
    assert rendered(title="{% if %}", is_check=True).problem.startswith("in its line 1: ")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("{{ count }}{% for each in items %}{{ each.text }}{{ loop.index }}{% endfor %}{{ range(3) }}", ""),
        ("{{ knd }}", "no message has 'knd', did you mean 'kind'?"),
        ("{% if text %}{{ xyzzy }}{% endif %}", "no message has 'text'"),
    ],
)
def test_a_check_knows_the_names_that_a_message_has(body: str, problem: str) -> None:
    found = render_all(RenderingAsk(MessageTemplates(body=body), FACTS, True, ("count", "items", "kind")))
    assert found == Rendered(template="body" if problem else "", problem=problem)


def test_texts_are_cut() -> None:
    found = rendered(title="{{ 'x' * 100000 }}", body="{{ 'x' * 100000 }}")
    assert (len(found.texts["title"]), len(found.texts["body"])) == (LONGEST_TITLE, LONGEST_BODY)
