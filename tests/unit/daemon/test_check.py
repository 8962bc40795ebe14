"""What `spyweb check` finds beside the jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.daemon.check import find_doubtful_heartbeat, find_missing_variables, find_readable_secrets
from spyweb.model import PingAddresses
from spyweb.settings.sections import HeartbeatSettings
from tests.fakes.harness import make_spec


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


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[channels.phone]\nurl = "tgram://hunter2/1"\n', 2),
        ('[http.headers]\nAuthorization = "Bearer hunter2"\n', 2),
        ('[jobs.a]\n[jobs.a.http]\nproxy = "http://me:hunter2@proxy.example"\n', 3),
        ('[channels.phone]\nurl = "tgram://${TOKEN}/1"\nsecret = "env:HOOK"\nsecret_file = "hook"\n', None),
        ('[http]\nuser_agent = "me"\n', None),
    ],
)
def test_a_secret_in_a_file_that_others_may_read_is_told(tmp_path: Path, text: str, line: int | None) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    file.chmod(0o644)
    found = find_readable_secrets(tmp_path)
    assert [problem.line for problem in found] == ([] if line is None else [line])
    assert all(problem.is_warning and "hunter2" not in str(problem) for problem in found)
    file.chmod(0o640)
    assert find_readable_secrets(tmp_path) == []


def test_a_variable_that_the_address_of_a_watcher_lacks_is_named_with_its_job() -> None:
    whole, own = PingAddresses(base="https://hc/${KEY}"), PingAddresses(fail="https://hc/${OTHER}", is_own=True)
    specs = [
        make_spec(),
        make_spec("a", ping=whole),
        make_spec("b", ping=own),
        make_spec("c", ping=PingAddresses(fail="https://hc/${OTHER}")),
    ]
    found = find_missing_variables(specs, {"KEY": "x"})
    assert [problem.reason for problem in found] == [
        "c: the variable OTHER is not set, in the environment of this check"
    ]
