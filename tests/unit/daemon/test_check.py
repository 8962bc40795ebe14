"""What `spyweb check` finds beside the jobs."""

from __future__ import annotations

import pytest

from spyweb.daemon.check import find_doubtful_heartbeat
from spyweb.settings.heartbeat import HeartbeatSettings


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", []),
        ("https://hc-ping.com/${KEY}", []),
        ("http://localhost:8000/ping/${KEY}", ["this machine watches over itself: nobody notices when it is down"]),
        ("https://hc-ping.com/${OTHER}", ["the variable OTHER is not set, in the environment of this check"]),
    ],
)
def test_a_heartbeat_that_nobody_would_miss_is_doubtful(url: str, said: list[str]) -> None:
    found = find_doubtful_heartbeat(HeartbeatSettings(url=url), {"KEY": "abc"})
    assert [problem.reason for problem in found] == said
    assert all(problem.is_warning and problem.key == "heartbeat.url" for problem in found)
