"""`spyweb test` as people and CI use it: the real command, a daemon beside it, the project of its page."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess

import pytest

from tests.fakes.project import COMMAND, Project, eventually
from tests.fakes.repository import read
from tests.fakes.terminal import read_terminal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(90)]

SAMPLE = re.compile(r"`(?P<path>[\w/.]+\.(?:lua|toml))`[^\n]*:\n\n```\w+\n(?P<text>.*?)```", re.DOTALL)
PASSING = "function test_fine() spyweb.assert_eq(1, 1) end\n"
FAILING = "function test_wrong() spyweb.assert_eq(1 + 1, 3) end\n"


def test_the_project_of_the_page_works_as_the_page_says(project: Project) -> None:
    for found in SAMPLE.finditer(read("docs/how-to/test-a-job.md")):
        project.save(found["path"], found["text"])

    assert "no problems" in project.spyweb("check").stderr
    everything = project.spyweb("test", "--virtual-time").stdout
    one = project.spyweb("test", "prices", "lower").stdout
    project.save("jobs/prices/hooks.lua", (project.root / "jobs/prices/hooks.lua").read_text().replace(">=", ">"))
    broken = project.spyweb("test", "prices", "lower", code=1).stdout

    assert re.search(r"test result: ok\. 6 passed; 0 failed; finished in .*\n$", everything)
    assert re.findall(r"^ok .*?(?= \()", one, re.MULTILINE) == ["ok prices: test_only_a_lower_price_passes"]
    shown = read("docs/how-to/test-a-job.md")
    assert "jobs/prices/tests.lua:12: the same price again: a table is not equal to nil" in broken
    assert "jobs/prices/tests.lua:12: the same price again: a table is not equal to nil" in shown


def test_exit_codes_and_the_last_line_say_how_it_went(project: Project) -> None:
    project.job("good", PASSING)
    project.job("bad", PASSING + FAILING)
    answer = project.spyweb("test", code=1)
    assert "jobs/bad.lua:5: 2 is not equal to 3" in answer.stdout
    assert answer.stdout.splitlines()[-1].startswith("test result: FAILED. 2 passed; 1 failed;")

    answer = project.spyweb("test", "good")
    assert answer.stdout.splitlines()[-1].startswith("test result: ok. 1 passed; 0 failed;")

    assert project.spyweb("test", "bad", "nothing", code=2).stdout == ""


def test_a_running_daemon_and_its_data_are_left_alone(project: Project) -> None:
    project.job(
        "keeper",
        'function run() store_set("kept", "by the daemon") return store_get("kept") end\n'
        'function test_keeps() spyweb.assert_eq(store_get("kept"), nil) store_set("kept", "by a test") end\n'
        'function test_logs() log("tested") end',
    )
    with project.daemon():
        assert project.result("keeper") == "by the daemon"
        project.spyweb("test")
        assert project.spyweb("state", "get", "--job", "keeper", "kept").stdout.strip() == "by the daemon"
        assert len(project.runs("keeper")) == 1, "a test is no run"
    log = project.root / "jobs" / "keeper" / "hooks.log"
    assert not log.exists() or "tested" not in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_cleanly(project: Project, tmp_path_factory: pytest.TempPathFactory, number: int) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    project.job("slow", "function test_a() end\nfunction test_b() store_set('a', 'b') sleep(60000) end")
    process = subprocess.Popen(
        [*COMMAND, "-C", str(project.root), "test"],
        env={**project.environment, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    eventually(lambda: list(scratch.glob("*/3/spyweb.db")), "the database of the second test")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 130
    assert err == ""
    assert out.splitlines()[-1] == "test result: ok. 1 passed; 0 failed; interrupted"
    assert not list(scratch.iterdir())


def test_on_a_terminal_a_bar_shows_how_far_it_is(project: Project) -> None:
    project.job("good", PASSING + "function test_slow() sleep(300) end\n")
    ours, theirs = pty.openpty()
    environment = {**project.environment, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*COMMAND, "-C", str(project.root), "test"], env=environment, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    shown = read_terminal(ours)
    assert process.wait(30) == 0
    assert "testing" in shown
    assert "50%" in shown
    assert "ok good: test_slow" in shown
    assert "test result: ok. 2 passed; 0 failed" in shown
