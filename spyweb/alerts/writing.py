"""Write the text of a message to people: what is known of an incident, and the end of its run's log, no secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from spyweb.alerts.texts import AlertFacts, AlertItem, body_of, mood_of, title_of
from spyweb.errors import STORE_REFUSED
from spyweb.incidents.policy import Level
from spyweb.incidents.telling import MessageKind
from spyweb.logs.job import NAME
from spyweb.logs.reading import lines_between
from spyweb.logs.secrets import secrets_in
from spyweb.model import RunId
from spyweb.runs.live import LiveJobs
from spyweb.store.sqlite.past_runs import PastRuns

# The names that a template may use.
TEMPLATE_FACTS = (*AlertFacts.__struct_fields__, *AlertItem.__struct_fields__, "log", "page_url")

DIGEST, TEST = "digest", "test"  # as the kind of a message that is not about one incident
LOG_LINES = 5
LONGEST_LOG = 1_000  # characters
MOST_READ = 32_768  # bytes of a log
STAMP = len("2026-11-23T19:31:56.496Z ")


class AlertText(NamedTuple):
    title: str
    body: str
    mood: str
    facts: bytes = b"{}"  # that a template may name, as JSON


class AlertWriter:
    def __init__(
        self,
        *,
        timezone: str,
        pages: str,
        root: Path,
        live: LiveJobs,
        past_runs: PastRuns,
        environ: Mapping[str, str],
    ) -> None:
        """Write with links below `pages`, where others reach the dashboard; without any where it is empty."""
        self._pages = pages
        self._timezone = timezone
        self._root = root
        self._live = live
        self._past_runs = past_runs
        self._secrets = secrets_in(environ)

    async def compose(self, facts: AlertFacts) -> AlertText:
        """Write a text; it is the same at each attempt, but for a log that is gone meanwhile."""
        log, page = await self._last_lines(facts), self._page(facts)
        text = AlertText(
            title=title_of(facts), body=body_of(facts, self._timezone, page=page, log=log), mood=mood_of(facts)
        )
        plain = body_of(facts, self._timezone)
        named = {"title": text.title, "page_url": page, "log": "\n".join(log)}
        return text._replace(facts=template_facts(facts, plain, named))

    def _page(self, facts: AlertFacts) -> str:
        number = facts.alone.incident if facts.alone else None
        return f"{self._pages}incidents/{number}" if self._pages and number is not None else ""

    async def _last_lines(self, facts: AlertFacts) -> Sequence[str]:
        """Return the last lines that the run has logged with which an incident began."""
        alone = facts.alone
        if alone is None or alone.run is None or alone.kind not in (MessageKind.OPENED, MessageKind.WAS):
            return ()
        return shortened([self._secrets.hide_in_prose(line) for line in await self._log(alone.run)])

    async def _log(self, number: RunId) -> Sequence[str]:
        try:
            run = await self._past_runs.find(number)
        except STORE_REFUSED:  # people are told all the same
            return ()
        job = self._live.find(run.job) if run else None
        if run is None or job is None or run.started_ms is None or run.ended_ms is None:
            return ()
        path = self._root / job.spec.folder / NAME
        found = await asyncio.to_thread(lines_between, path, run.started_ms, run.ended_ms, MOST_READ)
        return [line[STAMP:] if line[:1].isdigit() else line for line in found.lines]


def shortened(lines: Sequence[str]) -> Sequence[str]:
    """Return the last of these lines, cut where they are long."""
    kept, left = list[str](), LONGEST_LOG
    for line in reversed(lines[-LOG_LINES:]):
        if left < 2:
            break
        kept.append(line if len(line) < left else f"{line[: left - 2]}…")
        left -= len(kept[-1]) + 1
    return kept[::-1]


def template_facts(facts: AlertFacts, body: str, more: Mapping[str, str]) -> bytes:
    """Return the facts as a template names them: of a message about one incident, those of that as well.

    Of several, and of none, each name stands for something too, so that a template fails for no kind of message alone.
    """
    named: dict[str, Any] = msgspec.to_builtins(facts)
    items = named["items"]
    if facts.alone:
        alone = items[0]
    else:
        level = max((item.level for item in facts.items), key=lambda level: level.rank, default=Level.INFO)
        alone = {**dict.fromkeys(AlertItem.__struct_fields__, ""), "kind": DIGEST if items else TEST, "text": body}
        alone["level"] = level.value
    return msgspec.json.encode({**alone, **named, **more})
