from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from spyweb.cli import systemd
from spyweb.cli.systemd import FOR_COMMANDS, MARK, Unit, describe, render, unit_path, whose
from spyweb.errors import Refused
from spyweb.settings.load import load_settings
from tests.fakes.command import spyweb

REPOSITORY = Path(__file__).parents[3]
ROOT = Path("/srv/spyweb")
UNIT = Unit(
    program=("/opt/spyweb/.venv/bin/spyweb",),
    root=ROOT,
    writable=(ROOT,),
    runs_from=(ROOT, Path("/opt/spyweb/.venv/bin/python"), Path("/usr")),
    user="spyweb",
)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What systemctl was told."""
    story: list[str] = []
    monkeypatch.setattr(systemd, "find_systemctl", lambda user_unit: lambda words: story.append(" ".join(words)))
    return story


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> Path:
    place = tmp_path / "units"
    monkeypatch.setattr(systemd, "SYSTEM_UNITS", place)
    return place


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return root


def typed(project: Path, *words: str) -> list[str]:
    """Return what `spyweb systemd ...` says."""
    answer = spyweb("systemd", *words, root=project)
    assert answer.code == 0, answer.err
    return answer.lines


def refused(project: Path, *words: str) -> str:
    answer = spyweb("systemd", *words, root=project)
    assert (answer.code, answer.out) == (2, "")
    return answer.err


def settings_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_the_template_in_deploy_is_what_install_would_print() -> None:
    assert (REPOSITORY / "deploy/spyweb.service").read_text() == render(UNIT)


def test_systemd_is_told_when_it_is_ready_and_waits_longer_than_the_grace() -> None:
    found = settings_of(render(replace(UNIT, grace_s=60)))
    assert (found["Type"], found["WatchdogSec"]) == ("notify", "30")
    assert "After" not in found, "jobs that need no network run while a machine has none"
    assert int(found["TimeoutStopSec"]) > 60
    assert found["ExecStart"] == "/opt/spyweb/.venv/bin/spyweb -C /srv/spyweb start"


def test_a_project_in_a_home_stays_readable_and_one_in_the_temporary_folder_too() -> None:
    assert settings_of(render(UNIT))["ProtectHome"] == "yes"
    at_home = replace(UNIT, runs_from=(Path("/home/me/watch"),))
    assert settings_of(render(at_home))["ProtectHome"] == "read-only"
    interpreter_at_home = replace(UNIT, runs_from=(ROOT, Path("/root/.local/python3.13")))
    assert settings_of(render(interpreter_at_home))["ProtectHome"] == "read-only"
    assert settings_of(render(replace(UNIT, runs_from=(Path("/tmp/watch"),))))["PrivateTmp"] == "no"


def test_a_users_own_unit_names_no_user_and_asks_for_nothing_that_takes_root() -> None:
    text = render(replace(UNIT, user=None))
    assert "User=" not in text
    assert "ProtectSystem" not in text
    assert "WantedBy=default.target" in text
    assert "NoNewPrivileges=yes" in text


def permit(project: Path, text: str) -> None:
    (project / "config.toml").write_text(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("[permissions]\nexec = []\n", False),
        ("[permissions]\nexec = ['/bin/true']\n", True),
        ("[permissions]\nexec = ['*']\n", True),
        ("[jobs.a.permissions]\nexec = ['/bin/true']\n", True),
        ("[jobs.a.permissions]\nnet = []\n", False),
        ("[server.permissions]\nexec = ['/bin/true']\n", True),
    ],
)
def test_the_addition_for_commands_is_there_where_they_are_permitted(
    project: Path, units: Path, text: str, expected: bool
) -> None:
    permit(project, text)
    lines = typed(project, "install")
    assert ("Delegate=cpu memory pids" in lines) == expected
    assert lines[0] == MARK
    assert f"WorkingDirectory={project}" in lines
    assert not units.exists(), "it is printed alone"


def test_writing_puts_the_addition_beside_the_unit_and_takes_it_away_again(project: Path, units: Path) -> None:
    permit(project, "[permissions]\nexec = ['*']\n")
    lines = typed(project, "install", "--write")
    addition = units / "spyweb.service.d/exec.conf"
    assert addition.read_text().startswith(MARK)
    assert lines[0] == f"wrote {addition}: jobs may run commands"
    permit(project, "")
    typed(project, "install", "--write")
    assert not addition.parent.exists()


def test_somebody_elses_addition_is_left_alone(project: Path, units: Path) -> None:
    addition = units / "spyweb.service.d/exec.conf"
    addition.parent.mkdir(parents=True)
    addition.write_text("[Service]\n")
    typed(project, "install", "--write")
    assert addition.exists()
    permit(project, "[permissions]\nexec = ['*']\n")
    assert "was not made by" in refused(project, "install", "--write")


def test_the_addition_of_a_users_own_unit_asks_for_nothing_that_takes_root() -> None:
    everything, own = (render(each, FOR_COMMANDS) for each in (UNIT, replace(UNIT, user=None)))
    assert {"Delegate", "ProtectControlGroups", "MemoryDenyWriteExecute", "SystemCallFilter", "ProcSubset"} == set(
        settings_of(everything)
    )
    assert {"Delegate", "MemoryDenyWriteExecute", "SystemCallFilter"} == set(settings_of(own))


def test_odd_paths_are_quoted_for_systemd() -> None:
    odd = Path('/srv/my "100%" $HOME\\x')
    text = render(replace(UNIT, root=odd, writable=(odd,)))
    found = settings_of(text)
    assert found["WorkingDirectory"] == '/srv/my "100%%" $HOME\\x'
    assert found["ReadWritePaths"] == '"/srv/my \\"100%%\\" $HOME\\\\x"'
    assert found["ExecStart"].endswith('-C "/srv/my \\"100%%\\" $$HOME\\\\x" start')


def test_a_path_with_a_line_break_is_refused() -> None:
    with pytest.raises(Refused, match="line breaks"):
        render(replace(UNIT, root=Path("/srv/a\nExecStart=/bin/sh")))


def test_writing_puts_the_unit_and_says_what_to_type_next(project: Path, units: Path, told: list[str]) -> None:
    said = typed(project, "install", "--write", "--name", "prices")
    path = units / "prices.service"
    assert path.read_text().startswith(MARK)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert told == ["daemon-reload"]
    assert said[-1] == "  systemctl enable --now prices"
    assert [found.name for found in units.iterdir()] == ["prices.service"]


def test_somebody_elses_unit_is_neither_replaced_nor_removed(project: Path, units: Path) -> None:
    units.mkdir()
    theirs = units / "spyweb.service"
    theirs.write_text("[Unit]\n")
    assert "nothing was changed" in refused(project, "install", "--write")
    assert "nothing was changed" in refused(project, "uninstall")
    assert theirs.read_text() == "[Unit]\n"


@pytest.mark.parametrize("config", ["", "[daemon\n"])
def test_uninstall_stops_the_service_removes_all_of_the_unit_and_names_what_stays(
    project: Path, units: Path, told: list[str], config: str
) -> None:
    permit(project, "[permissions]\nexec = ['*']\n")
    typed(project, "install", "--write")
    permit(project, config)
    told.clear()
    said = typed(project, "uninstall")
    assert told == ["disable --now spyweb", "daemon-reload"]
    assert not list(units.iterdir())
    assert said[-1] == f"kept {project} and the data in {project / 'data'}"


def test_without_systemd_writing_says_so_in_one_line(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(systemd, "SYSTEM_UNITS", units := tmp_path / "units")
    monkeypatch.setattr(systemd, "BOOTED", tmp_path / "not booted")
    assert "systemd does not run on this machine" in refused(project, "install", "--write")
    assert not units.exists()


def test_without_rights_writing_says_which_it_takes(
    project: Path, units: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(systemd, "replaced", refuse)
    assert "use sudo, or --user" in refused(project, "install", "--write")


@pytest.mark.parametrize("name", ["", "../evil", "a b", "x.service", "-x"])
def test_a_name_that_is_none_is_refused(project: Path, name: str) -> None:
    assert "can't be a unit's name" in refused(project, "install", f"--name={name}")


def test_data_outside_the_project_is_writable_too(project: Path, tmp_path: Path) -> None:
    elsewhere, backups = tmp_path / "elsewhere", tmp_path / "backups"
    backup = f'[backup]\ncron = "@daily"\ndir = "{backups}"\n'
    (project / "config.toml").write_text(f'[daemon]\ndata_dir = "{elsewhere}"\nshutdown_grace = "90s"\n{backup}')
    unit = describe(load_settings(project, environ={}, flags={}), user_unit=False, name="spyweb")
    assert unit.writable == (project, backups, elsewhere)
    assert unit.grace_s == 90


def test_a_unit_of_the_users_own_lies_in_their_settings() -> None:
    path = unit_path("spyweb", user_unit=True, environment={"XDG_CONFIG_HOME": "/home/me/.settings"})
    assert path == Path("/home/me/.settings/systemd/user/spyweb.service")


def test_root_makes_a_service_for_the_owner_of_the_project_and_behind_sudo_never_for_root(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(project, 65534, -1)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert whose(project, {"SUDO_USER": "alice"}) == pwd.getpwuid(project.stat().st_uid).pw_name
    assert whose(Path("/"), {"SUDO_USER": "alice"}) == "alice"
    assert whose(Path("/"), {}) == "root"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_the_unit_is_well_formed_and_exposes_little() -> None:
    unit = str(REPOSITORY / "deploy/spyweb.service")
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    assert "Unknown key" not in done.stderr, done.stderr


def test_uninstall_without_a_unit_says_so(project: Path, units: Path) -> None:
    assert f"there is no {units}" in refused(project, "uninstall")
