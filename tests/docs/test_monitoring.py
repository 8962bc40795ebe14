"""The board for Grafana and the rules for Prometheus load, and name metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.fakes.meters import sample_names
from tests.fakes.repository import read

BOARD: dict[str, Any] = json.loads(read("deploy/grafana.json"))
RULES: dict[str, Any] = yaml.safe_load(read("deploy/alerts.yml"))
KNOWN = {*sample_names(), "up"}  # Prometheus itself knows `up`

NO_METRICS = {"histogram_quantile", "exported_job"}  # other words with an underscore
_QUOTED = re.compile(r'"[^"]*"')


def names_in(expression: str) -> set[str]:
    return {
        word for word in re.findall(r"\w+", _QUOTED.sub("", expression)) if "_" in word or word == "up"
    } - NO_METRICS


def queries() -> list[tuple[str, str]]:
    """Return each query of the board, and the title of its panel."""
    panels = BOARD["panels"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]


def rules() -> list[Mapping[str, Any]]:
    return [rule for group in RULES["groups"] for rule in group["rules"]]


def test_the_names_are_found_in_an_expression() -> None:
    assert names_in('sum by (op, le) (rate(spyweb_x_total{op=~"a|b"}[5m])) > 5') == {"spyweb_x_total"}


@pytest.mark.parametrize(("title", "expression"), queries())
def test_every_query_of_the_board_names_metrics_that_there_are(title: str, expression: str) -> None:
    assert names_in(expression), title
    assert names_in(expression) <= KNOWN
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_rule_names_metrics_that_there_are_and_says_what_to_do(rule: Mapping[str, Any]) -> None:
    assert names_in(rule["expr"])
    assert names_in(rule["expr"]) <= KNOWN
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_the_rules_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_the_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_the_board_shows_every_metric() -> None:
    shown = {name for _, expression in queries() for name in names_in(expression)}
    bases = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in shown}
    told = {re.sub(r"_(bucket|sum|count|total)$", "", name) for name in KNOWN if name.startswith("spyweb_")}
    assert told - bases == set()


def test_the_page_about_the_server_lists_every_metric_and_no_other() -> None:
    told = set(re.findall(r"`(spyweb_[a-z_]+)`", read("docs/reference/server.md")))
    known = {re.sub(r"_(bucket|sum|count)$", "", name) for name in KNOWN if name.startswith("spyweb_")}
    assert told == known
