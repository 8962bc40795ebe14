"""What a check has measured, in words."""

from __future__ import annotations

import pytest

from spyweb.model import Failure, Outcome
from spyweb.views.runs import check_result, describe_end
from tests.fakes.daemon_service import make_run


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ('{"cert_days":43,"latency":85.4,"redirects":0,"size":9,"status":200}', "85 ms, 200, certificate 43 days"),
        ('{"chain_ok":true,"days":1,"latency":1240}', "1.2 s, certificate 1 day"),
        ('{"latency":3,"loss":0.667}', "3 ms, 67% lost"),
        ('{"latency":0.2,"loss":0}', "0 ms"),
        ('{"entries":7}', '{"entries":7}'),
        ('{"latency":"soon"}', '{"latency":"soon"}'),
        ("7", "7"),
        ("", ""),
    ],
)
def test_the_result_of_a_check_is_told_by_what_matters_of_it(result: str, words: str) -> None:
    run = make_run(result=result)
    assert describe_end(run, is_check=True) == words
    assert describe_end(run, is_check=False) == result


def test_a_check_that_fails_has_measured_nothing() -> None:
    run = make_run(outcome=Outcome.FAILED, failure=Failure.ERROR, reason="down", result='{"latency":3}')
    assert check_result(run) is None
    assert check_result(None) is None
    assert describe_end(make_run(outcome=Outcome.FAILED, reason="down"), is_check=True) == "down"
