from __future__ import annotations

import os
from pathlib import Path

import pytest

from spyweb import __version__
from spyweb.errors import ConfigError
from spyweb.settings.load import examine_settings, load_settings, machine_timezone
from spyweb.settings.sections import LogLevel, Settings, StoreSettings


def load(root: Path, text: str | None = None, flags: dict[str, object] | None = None, **environ: str) -> Settings:
    if text is not None:
        (root / "config.toml").write_text(text, encoding="utf-8")
    return load_settings(root, environ=environ, flags=flags or {})


def problems(root: Path, text: str | None = None, flags: dict[str, object] | None = None, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(root, text, flags, **environ)
    return [str(problem) for problem in caught.value.problems]


def test_without_a_file_everything_has_its_default(tmp_path: Path) -> None:
    settings = load(tmp_path, TZ="Europe/Berlin")

    assert settings.daemon.data_dir == tmp_path / "data"
    assert settings.daemon.timezone == "Europe/Berlin"
    assert settings.daemon.workers >= 2
    assert settings.server.api_key is None
    assert settings.store.path == tmp_path / "data" / "spyweb.db"
    assert settings.http.user_agent == f"spyweb/{__version__}"
    assert settings.security.env_deny == ("API_KEY", "STORE_KEY", "STORE_PASSWORD", "STORE_URL")


def test_the_data_folder_gives_way_to_a_file_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("somebody else's")
    assert load(tmp_path).daemon.data_dir == tmp_path / ".spyweb"


def test_a_project_that_began_beside_such_a_file_goes_on_where_it_was_when_the_file_goes(tmp_path: Path) -> None:
    (tmp_path / ".spyweb").mkdir()
    (tmp_path / ".spyweb/spyweb.db").touch()
    assert load(tmp_path).daemon.data_dir == tmp_path / ".spyweb"

    (tmp_path / "data").mkdir()
    (tmp_path / "data/spyweb.db").touch()
    assert load(tmp_path).daemon.data_dir == tmp_path / "data"


def test_the_store_stands_where_the_data_folder_was_moved_or_in_the_project(tmp_path: Path) -> None:
    assert load(tmp_path, '[daemon]\ndata_dir = "/var/lib/x"').store.path == Path("/var/lib/x/spyweb.db")
    assert load(tmp_path, '[store]\nurl = "sqlite:///db/a.db"').store.path == tmp_path / "db" / "a.db"
    assert StoreSettings(url="sqlite:////var/lib/spyweb.db").path == Path("/var/lib/spyweb.db")


@pytest.mark.parametrize(
    ("url", "shown", "password"),
    [
        ("postgresql://ann:s%40same@db.example/spyweb", "postgresql://ann@db.example/spyweb", "s@same"),
        ("postgres://ann@a:1,b:2/x?sslmode=require", "postgres://ann@a:1,b:2/x?sslmode=require", "of the environment"),
        ("postgresql:///x?host=/run/postgresql", "postgresql:///x?host=/run/postgresql", "of the environment"),
        ("postgresql://ann:@[::1]:5432/x", "postgresql://ann:@[::1]:5432/x", "of the environment"),
    ],
)
def test_the_password_of_a_postgresql_is_apart_from_its_url_and_never_shown(
    tmp_path: Path, url: str, shown: str, password: str
) -> None:
    settings = load(tmp_path, f'[store]\nurl = "{url}"', SPYWEB_STORE_PASSWORD="of the environment")
    assert (settings.store.url, settings.store.hidden, settings.store.schema) == (shown, password, "spyweb")
    assert settings.store.is_postgres
    assert not settings.store.is_file
    assert password not in repr(settings)
    assert load(tmp_path, "", SPYWEB_STORE_URL=url).store.url == shown


def test_the_password_may_be_a_credential_of_systemd(tmp_path: Path) -> None:
    (tmp_path / "db").write_text("sesame\n")
    text = '[store]\nurl = "postgres://db/x"\npassword = "credential:db"'
    assert load(tmp_path, text, CREDENTIALS_DIRECTORY=str(tmp_path)).store.hidden == "sesame"
    assert load(tmp_path, text).store.hidden == ""


def test_a_node_is_described_by_its_own_section_or_by_variables(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        '[cluster]\nname = "FRA-1"\nlabels = ["gpu", "Big", "gpu"]\nlease = "3s"\nbeat = 0.5\nonly_labels = true',
    ).cluster
    assert (found.name, found.labels, found.only_labels) == ("fra-1", ("big", "gpu"), True)
    assert (found.lease_ms, found.beat_ms, found.standby, found.url) == (3000, 500, False, "")
    named = load(tmp_path, SPYWEB_NODE="2", SPYWEB_NODE_URL="http://n:7979/", SPYWEB_NODE_LABELS="eu, gpu").cluster
    assert (named.name, named.url, named.labels) == ("2", "http://n:7979", ("eu", "gpu"))
    assert load(tmp_path, "").cluster.name


def test_headers_for_every_request_are_a_table(tmp_path: Path) -> None:
    settings = load(tmp_path, '[http]\nheaders = { Accept-Language = "de", "X-Team" = "red" }')
    assert settings.http.headers == (("Accept-Language", "de"), ("X-Team", "red"))
    for wrong, reason in [
        ('"x"', """expected a table such as { "User-Agent" = "text" }, not 'x'"""),
        ('{ "a b" = "c" }', "'a b' is not a valid header name"),
        ("{ a = 1 }", "expected text for a, not 1"),
        ('{ a = "b\\nc" }', "the header a can't hold line breaks or control characters"),
    ]:
        assert problems(tmp_path, f"[http]\nheaders = {wrong}") == [f"config.toml:2: http.headers: {reason}"]


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    text = "[server]\nport = 2\n"

    assert load(tmp_path).server.port == 7979
    assert load(tmp_path, text).server.port == 2
    assert load(tmp_path, text, SPYWEB_PORT="3").server.port == 3
    assert load(tmp_path, text, {"port": 4}, SPYWEB_PORT="3").server.port == 4
    assert load(tmp_path, text, {"port": None}, SPYWEB_PORT="3").server.port == 3


def test_every_variable_is_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        SPYWEB_HOST="::1",
        SPYWEB_DISABLE_SERVER="true",
        SPYWEB_LOG="WARN",
        SPYWEB_API_KEY="secret",
        SPYWEB_THREADS="7",
    )
    assert (settings.server.host, settings.server.enabled) == ("::1", False)
    assert settings.daemon.log_level is LogLevel.WARNING
    assert settings.daemon.workers == 7
    assert settings.server.api_key == "secret"


def test_the_api_key_has_no_blanks_around_it_since_no_header_could_and_is_never_shown(tmp_path: Path) -> None:
    settings = load(tmp_path, SPYWEB_API_KEY=" secret\n")
    assert settings.server.api_key == "secret"
    assert "secret" not in repr(settings)
    assert load(tmp_path, SPYWEB_API_KEY="  ").server.api_key is None


@pytest.mark.parametrize(("value", "enabled"), [("1", False), ("yes", False), ("0", True), ("false", True), ("", True)])
def test_the_server_is_disabled_only_by_a_yes(tmp_path: Path, value: str, enabled: bool) -> None:
    assert load(tmp_path, SPYWEB_DISABLE_SERVER=value).server.enabled is enabled


def test_no_server_as_a_flag_wins_and_its_absence_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, flags={"no_server": True}).server.enabled is False
    assert load(tmp_path, "[server]\nenabled = false", {"no_server": False}).server.enabled is False


def test_every_problem_is_told_at_once_with_file_line_key_and_reason(tmp_path: Path) -> None:
    text = """\
[daemon]
wrokers = 3
shutdown_grace = "5x"
[serv]
[server]
port = 99999
enabled = "yes"
[jobs]
y = 4
"""
    assert problems(tmp_path, text, {"workers": 0}, SPYWEB_PORT="x1") == [
        "command line: --workers: must be at least 1, not 0",
        'config.toml:2: daemon.wrokers: unknown key; did you mean "workers"?',
        "config.toml:3: daemon.shutdown_grace: expected a number of seconds, "
        'or text such as "1h30m" or "250ms", not \'5x\'',
        'config.toml:4: serv: unknown section; did you mean "server"?',
        "config.toml:6: server.port: must be at most 65535, not 99999",
        "config.toml:7: server.enabled: expected true or false, not 'yes'",
        "config.toml:9: jobs.y: expected the settings of a job, [jobs.ID]",
        "environment: SPYWEB_PORT: expected a whole number, not 'x1'",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[daemon]\nworkers = = 2", "config.toml:2: not valid TOML: "),
        (b"[daemon]\n# \xff\n", "config.toml:2: is not UTF-8 text"),
        (b"daemon = 5", "config.toml:1: daemon: expected a section, [daemon]"),
        (b'[store]\nurl = "mysql://u:sesame@x"', 'config.toml:2: store.url: expected "sqlite:///" and'),
        (b'[store]\nurl = "postgres://u:sesame@x"', 'config.toml:2: store.url: expected "postgresql://USER@HOST/'),
        (b'[store]\nurl = "postgres://x/y?pass%77ord=sesame"', "config.toml:2: store.url: a password does not stand"),
        (b'[store]\nschema = "My Own"', "config.toml:2: store.schema: 'My Own' is no schema: "),
        (b'[store]\npassword = "sesame"', "config.toml:2: store.password: expected the place of the secret"),
        (b'[cluster]\nname = "a b"', "config.toml:2: cluster.name: 'a b' is no name of a node or label: "),
        (b"[cluster]\nbeat = 5", "config.toml:2: cluster.beat: must be at most a quarter of lease: 2.5s"),
        (b"[cluster]\nonly_labels = true", "config.toml:2: cluster.only_labels: this node has no labels: "),
    ],
)
def test_what_is_no_config_toml_is_told_with_file_and_line(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "config.toml").write_bytes(content)
    (problem,) = problems(tmp_path)
    assert problem.startswith(said)
    assert "sesame" not in problem


def test_a_file_that_cannot_be_read_says_why_and_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    assert problems(tmp_path) == ["config.toml: can't be read: Is a directory"]
    (tmp_path / "config.toml").rmdir()
    os.mkfifo(tmp_path / "config.toml")
    assert problems(tmp_path) == ["config.toml: can't be read: not a regular file"]


def test_byte_order_mark_and_windows_line_ends_are_no_matter(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nport = 5\r\n")
    assert load(tmp_path).server.port == 5


@pytest.mark.parametrize("name", ["data/user.db", "jobs/../data/user.db", "data/spyweb.lock"])
def test_the_store_is_no_file_that_holds_something_else(tmp_path: Path, name: str) -> None:
    (problem,) = problems(tmp_path, f'[store]\nurl = "sqlite:///{name}"')
    assert problem == "config.toml:2: store.url: expected a separate file, not one that spyweb uses for something else"


def test_no_path_holds_a_nul(tmp_path: Path) -> None:
    text = '[daemon]\ndata_dir = "a\\u0000"\n[store]\nurl = "sqlite:///a\\u0000"\nkey_file = "a\\u0000"\n'
    reason = "can't hold line breaks or control characters"
    assert problems(tmp_path, text) == [
        f"config.toml:2: daemon.data_dir: {reason}",
        f"config.toml:4: store.url: {reason}",
        f"config.toml:5: store.key_file: {reason}",
    ]
    assert load(tmp_path, '[store]\nkey_file = ""\n').store.key_file == ""


def test_the_tables_of_jobs_are_kept_with_their_lines(tmp_path: Path) -> None:
    settings = load(tmp_path, '[defaults]\ntimeout = 5\n[jobs.a]\nevery = "x"\n')
    assert settings.defaults.values == {"timeout": 5}
    assert str(settings.jobs["a"].problem("bad", "every")) == "config.toml:4: jobs.a.every: bad"


def test_settings_that_say_the_same_are_equal(tmp_path: Path) -> None:
    assert load(tmp_path, "[jobs.a]\nevery = 1\n") == load(tmp_path, "# moved\n\n[jobs.a]\nevery = 1\n")


def test_an_unknown_machine_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.realpath", lambda path: path)
    monkeypatch.setattr("spyweb.settings.load.Path.read_text", lambda _path, **_encoding: "Nowhere/Land")
    assert machine_timezone({"TZ": "also/wrong"}) == "UTC"
    assert machine_timezone({"TZ": ":Asia/Tokyo"}) == "Asia/Tokyo"


def test_settings_can_be_examined_with_defaults_in_place_of_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[server]\nport = 'x'\nhost = '::1'\n")
    settings, problems = examine_settings(tmp_path, environ={}, flags={})
    assert (settings.server.port, settings.server.host) == (7979, "::1")
    assert [problem.key for problem in problems] == ["server.port"]


def test_a_file_over_the_limit_is_refused_and_not_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    os.truncate(tmp_path / "config.toml", 1 << 40)
    _, found = examine_settings(tmp_path, environ={}, flags={})
    assert list(map(str, found)) == ["config.toml: is larger than 1MB"]


def test_the_address_of_the_heartbeat_may_hold_variables_and_is_never_shown(tmp_path: Path) -> None:
    found = load(tmp_path, '[heartbeat]\nurl = "https://hc-ping.com/${KEY}/spyweb"\nevery = "5m"\n').heartbeat
    assert (found.url, found.every_ms) == ("https://hc-ping.com/${KEY}/spyweb", 300_000)
    assert "hc-ping" not in repr(found)
    assert load(tmp_path, "").heartbeat.url == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('url = "ftp://secret/"', "2: heartbeat.url: expected an address: https:// or http"),
        ('url = "https://x/"\nevery = "1s"', "3: heartbeat.every: must be at least 10s, not 1s"),
        ('every = "2m"', "2: heartbeat.every: every 2m, but without an address: set url"),
    ],
)
def test_what_is_wrong_with_the_heartbeat_is_said_without_the_address(tmp_path: Path, text: str, said: str) -> None:
    (problem,) = problems(tmp_path, f"[heartbeat]\n{text}\n")
    assert problem.startswith(f"config.toml:{said}")
    assert "secret" not in problem
