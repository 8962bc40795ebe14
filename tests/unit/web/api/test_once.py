"""The Idempotency-Key of a request."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from spyweb.limits import IDEMPOTENCY_KEY
from spyweb.model import RunId
from spyweb.service.once import StartedRun
from spyweb.web.answer import BadParameter
from spyweb.web.api.once import REPEATED, key_of, started_answer


def asked(key: str | None) -> str | None:
    headers = {} if key is None else {"idempotency-key": key}
    return key_of(make_mocked_request("POST", "/", headers=headers))


def test_a_key_is_any_printable_text() -> None:
    assert asked(None) is None
    assert asked("8d3f-…") == "8d3f-…"
    assert asked("k" * IDEMPOTENCY_KEY) is not None


@pytest.mark.parametrize("key", ["", " ", "a\x01b", "k" * (IDEMPOTENCY_KEY + 1)])
def test_a_key_that_can_not_be_is_refused(key: str) -> None:
    with pytest.raises(BadParameter):
        asked(key)


def test_an_answer_says_when_it_is_a_repetition() -> None:
    assert REPEATED not in started_answer(StartedRun(run=RunId(1)), 202).headers
    assert started_answer(StartedRun(run=RunId(1), is_repeated=True), 202).headers[REPEATED] == "true"
