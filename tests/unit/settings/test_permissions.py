"""The tables of permissions: what they take, what they refuse, and which of them counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.errors import ConfigError
from spyweb.model import Isolation, JobSpec
from spyweb.permissions.policy import ANYTHING, Refusal
from spyweb.settings.load import load_settings
from spyweb.settings.permissions import find_writable_program
from spyweb.specs.discover import Scan, scan


def project(root: Path, config: str, block: str = "", name: str = "x") -> Scan:
    (root / "jobs").mkdir(exist_ok=True)
    lines = "".join(f"-- {line}\n" for line in ("/// job", *block.splitlines(), "///"))
    (root / f"jobs/{name}.lua").write_text(f"{lines}function run() end\n")
    (root / "config.toml").write_text(config)
    return scan(root, load_settings(root, environ={}, flags={}))


def spec_of(root: Path, config: str, block: str = "") -> JobSpec:
    found = project(root, config, block)
    assert not found.problems, found.problems
    (file,) = found.jobs.values()
    return file.spec


def problem_of(root: Path, config: str, block: str = "") -> str:
    (problem,) = project(root, config, block).problems
    return str(problem)


def remedy(refusal: Refusal | str | None) -> str:
    assert isinstance(refusal, Refusal)
    return refusal.remedy("x")


def test_a_project_without_any_of_the_keys_is_as_before(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "", "")
    assert spec.policy is spec_of(tmp_path, "[jobs.x]\nevery = '1h'\n").policy
    assert spec.policy == ANYTHING
    assert spec.policy.restricted == {"exec", "files"}
    assert spec.policy.folder("job") is spec.policy.folder("shared") is None
    assert spec.isolation is Isolation.SHARED


def test_a_job_s_table_replaces_the_common_one_key_by_key(tmp_path: Path) -> None:
    config = '[permissions]\nnet = ["a.test"]\ndb = false\n[jobs.x.permissions]\nnet = ["b.test"]\nstate = ["orders"]\n'
    policy = spec_of(tmp_path, config).policy
    assert policy.host("b.test", 80) is None
    assert policy.host("a.test", 80) is not None
    assert policy.db() is not None
    assert policy.state("scope:orders", True) is None
    assert policy.state("state", False) is not None


@pytest.mark.parametrize("block", ['permissions = { net = ["a.test", "b.test"] }', '[permissions]\nnet = ["a.test"]'])
def test_a_job_s_own_settings_can_only_narrow(block: str, tmp_path: Path) -> None:
    policy = spec_of(tmp_path, '[permissions]\nnet = ["a.test"]\nnotify = false\n', block).policy
    assert policy.host("a.test", 80) is None
    assert "config.toml" in remedy(policy.host("b.test", 80))
    assert policy.notify() is not None
    assert policy.exec("true") is not None


def test_a_job_can_not_give_itself_more(tmp_path: Path) -> None:
    block = 'permissions = { exec = ["*"], files = ["/etc"], db = true, env = ["*"] }'
    policy = spec_of(tmp_path, '[permissions]\ndb = false\nenv = ["A"]\n', block).policy
    assert "[jobs.x.permissions] exec" in remedy(policy.exec("true"))
    assert "[jobs.x.permissions] files" in remedy(policy.path("/etc/passwd"))
    assert "[jobs.x.permissions]" in remedy(policy.db())
    assert not policy.may_exec


def test_the_server_has_a_table_of_its_own(tmp_path: Path) -> None:
    config = '[permissions]\nnet = ["a.test"]\ndb = false\n[server.permissions]\nnet = ["b.test"]\n'
    (tmp_path / "config.toml").write_text(config)
    policy = load_settings(tmp_path, environ={}, flags={}).server.permissions
    assert policy.host("b.test", 80) is None
    assert policy.host("a.test", 80) is not None
    assert remedy(policy.db()) == "set db = true in [server.permissions] in config.toml"


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ('net = "a.test"', "expected a list of texts"),
        ('net = ["a b"]', "'a b' is no host"),
        ("net = [1]", "expected text, not 1"),
        ('exec = "rsync"', "expected a list of programs by absolute path"),
        ('exec = ["rsync"]', "'rsync': a program is named by its absolute path"),
        ('exec = [["*", "x"]]', "'* x': a program is named by its absolute path"),
        ('exec = [{ command = "/bin/x", envs = ["A"] }]', 'did you mean "env"?'),
        ('exec = [{ env = ["A"] }]', "command: is required"),
        ('exec = [{ command = "/bin/x", env = "A" }]', "expected a list of texts"),
        ("exec = [[]]", "a program is named by its absolute path"),
        ('exec = ["/usr/../bin/x"]', "a path without"),
        ('files = ["jobs"]', '\'jobs\': "job", "shared" or an absolute path expected'),
        ('files = ["/srv/../etc"]', "a path without"),
        ('files = ["/srv//x"]', "a path without"),
        ('env = ["AWS_*"]', "a whole name expected"),
        ('db = "no"', "expected true or false"),
        ("state = {}", "expected a list of scopes"),
        ('state = ["orders-*"]', "the name of a scope"),
        ('state = [{ scope = "a", readonly = true }]', 'did you mean "read_only"?'),
        ("state = [{ read_only = true }]", "scope: is required"),
        ('state = ["agent:"]', "the name of a scope"),
        ("nett = []", 'unknown key; did you mean "net"?'),
    ],
)
def test_what_is_wrong_is_told_in_every_table(keys: str, reason: str, tmp_path: Path) -> None:
    for table in ("permissions", "server.permissions"):
        (tmp_path / "config.toml").write_text(f"[{table}]\n{keys}\n")
        with pytest.raises(ConfigError) as raised:
            load_settings(tmp_path, environ={}, flags={})
        assert reason in str(raised.value)
        assert f"{table}." in str(raised.value)
    assert reason in problem_of(tmp_path, f"[jobs.x.permissions]\n{keys}\n")
    assert reason in problem_of(tmp_path, "", f"[permissions]\n{keys}\n")


def test_a_misspelt_key_of_a_monitor_s_own_permissions_is_no_mere_warning(tmp_path: Path) -> None:
    """Elsewhere in a monitor's file it is; here the job would have more than it says."""
    (tmp_path / "jobs/w").mkdir(parents=True)
    (tmp_path / "jobs/w/config.toml").write_text(
        'name = "w"\nurl = "https://a.test/"\nselector = "p"\nfields = ["t:p"]\n[permissions]\nnett = []\n'
    )
    found = scan(tmp_path, load_settings(tmp_path, environ={}, flags={}))
    assert [problem.key for problem in found.problems] == ["permissions.nett"]


def test_defaults_take_no_permissions(tmp_path: Path) -> None:
    found = project(tmp_path, "[defaults.permissions]\ndb = false\n")
    assert [problem.reason for problem in found.problems] == ["what jobs may reach is set in [permissions]"]


@pytest.mark.parametrize("word", ["true", '"all"', "[]"])
def test_permissions_are_a_table(word: str, tmp_path: Path) -> None:
    assert "expected a table" in problem_of(tmp_path, f"[jobs.x]\npermissions = {word}\n")
    assert "expected a table" in problem_of(tmp_path, "", f"permissions = {word}")


@pytest.mark.parametrize(
    ("on", "granted", "refused"),
    [
        ('{ scope = "orders" }', 'state = ["orders"]', False),
        ('{ scope = "orders" }', 'state = [{ scope = "orders", read_only = true }]', False),
        ('{ scope = "orders" }', 'state = ["other"]', True),
        ('{ key = "k" }', 'state = ["orders"]', True),
        ('{ key = "k" }', 'state = [{ scope = "*", read_only = true }]', False),
        ('{ scope = "state" }', 'state = ["orders"]', True),
        ('{ scope = "state" }', 'state = ["agent:local"]', False),
        ('{ scope = "state@web" }', 'state = ["agent:web"]', False),
        ('{ scope = "global" }', "global_store = false", True),
        ('{ scope = "global" }', "state = []", False),
        ('{ scope = "job:x" }', "state = []", False),
        ('{ scope = "job:other" }', "state = []", True),
        ('{ scope = "job:other" }', 'state = ["job:other"]', False),
    ],
)
def test_a_trigger_needs_to_read_what_it_would_tell(on: str, granted: str, refused: bool, tmp_path: Path) -> None:
    found = project(tmp_path, f"[permissions]\n{granted}\n", f"on = [{on}]")
    assert [problem.key for problem in found.problems] == (["on"] if refused else [])
    if refused:
        assert "on: 'x' may not" in str(found.problems[0])
        assert "[jobs.x.permissions]" in str(found.problems[0])


def test_a_job_that_may_run_commands_has_a_worker_of_its_own(tmp_path: Path) -> None:
    assert spec_of(tmp_path, '[permissions]\nexec = ["/bin/true"]\n').isolation is Isolation.PROCESS
    assert spec_of(tmp_path, "", 'permissions = { exec = ["/bin/true"] }').isolation is Isolation.SHARED


def test_a_program_that_the_job_could_replace_is_refused(tmp_path: Path) -> None:
    tools, linked = tmp_path / "tools", tmp_path / "linked"
    tools.mkdir()
    linked.symlink_to(tmp_path / "shared")
    for program, files in (
        (tmp_path / "shared/tool", []),
        (tmp_path / "jobs/x/tool", []),
        (linked / "tool", []),
        (tools / "tool", [str(tools)]),
    ):
        config = f'[permissions]\nexec = ["{program}"]\nfiles = {["job", "shared", *files]}\n'
        assert "where the job may write" in problem_of(tmp_path, config)
    assert find_writable_program(ANYTHING, tmp_path, "jobs/x") == ""
    assert spec_of(tmp_path, f'[permissions]\nexec = ["{tools}/tool"]\n').policy.may_exec


def test_a_program_that_the_server_could_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[server.permissions]\nexec = ["{tmp_path}/server/tool"]\n')
    with pytest.raises(ConfigError, match="where the job may write"):
        load_settings(tmp_path, environ={}, flags={})
