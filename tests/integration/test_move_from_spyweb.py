"""A SpyWeb project that is brought as it is: its file `data` is named, and one command brings what it holds."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path

import pytest

from tests.fakes.project import Project, eventually
from tests.fakes.repository import ROOT

LAYOUT = """
    CREATE TABLE records (job_id TEXT NOT NULL, rev_ts INTEGER NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job_id, rev_ts));
    CREATE TABLE seen (hash TEXT PRIMARY KEY);
    CREATE TABLE lua_user (key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE visits (page TEXT, n INTEGER);
    INSERT INTO lua_user VALUES ('front_page:cursor', '7'), ('total', '12');
    INSERT INTO visits VALUES ('/a', 3);
"""  # noqa: E501 - as SpyWeb writes it
THEN_NS = 1_700_000_000_000_000_000


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The sample monitor, with a `data` in which SpyWeb has found all that is on the page now."""
    project = Project(tmp_path / "project")
    shutil.copytree(ROOT / "jobs/front-page", project.root / "jobs/front-page")
    settings = project.root / "jobs/front-page/config.toml"
    settings.write_text('start = "interval"\n' + settings.read_text())  # a daemon leaves time for the import
    project.spyweb("run", "front_page")
    found = project.ask("records", "front_page")
    shutil.rmtree(project.root / "data")
    with closing(sqlite3.connect(project.root / "data")) as database, database:
        database.executescript(LAYOUT)
        for number, record in enumerate(found):
            moment = THEN_NS + number
            text = json.dumps({"fields": record["fields"], "timestamp": moment, "hash": str(number), "match_key": []})
            database.execute("INSERT INTO records VALUES ('front_page', ?, ?)", (moment, text))
    return project


def test_the_file_data_is_named_by_check_with_the_command_that_brings_it(project: Project) -> None:
    (problem,) = json.loads(project.spyweb("check", "-o", "json").stdout)
    assert (problem["file"], problem["is_warning"]) == ("data", True)
    assert "spyweb state import --from spyweb data" in problem["reason"]


@pytest.mark.parametrize("runs", [False, True], ids=["alone", "beside a daemon"])
def test_an_import_brings_keys_records_and_tables_and_nothing_is_announced_anew(project: Project, runs: bool) -> None:
    data = str(project.root / "data")
    with project.daemon() if runs else nullcontext() as daemon:
        planned = json.loads(
            project.spyweb("state", "import", "--from", "spyweb", data, "--dry-run", "-o", "json").stdout
        )
        brought = json.loads(project.spyweb("state", "import", "--from", "spyweb", data, "-o", "json").stdout)
        again = project.spyweb("state", "import", "--from", "spyweb", data, "--yes").stdout
        if daemon:
            assert "spyweb state import --from spyweb data" in daemon.output.read_text()
            project.spyweb("trigger", "front_page")
            eventually(lambda: project.ask("runs", "front_page")[0]["state"] == "ended", "the end of the run")
        else:
            project.spyweb("run", "front_page")
        records = project.ask("records", "front_page")

    assert (planned["dry_run"], planned["added"], planned["tables"]) == (True, 2, ["visits"])
    assert (brought["added"], brought["records"], brought["tables"]) == (2, len(records), ["visits"])
    assert again.strip() == (
        f"0 added, 2 replaced; records: 0 of {len(records)}, none of them announced; "
        "tables that are here already, and stay as they are: visits"
    )
    assert {record["timestamp"] for record in records} <= {THEN_NS + number for number in range(len(records))}
    with closing(sqlite3.connect(project.root / ".spyweb/user.db")) as database:
        assert database.execute("SELECT * FROM visits").fetchall() == [("/a", 3)]
    assert project.ask("outbox") == []


def test_the_project_goes_on_with_what_it_has_when_the_old_file_goes(project: Project) -> None:
    project.spyweb("state", "import", "--from", "spyweb", str(project.root / "data"))
    (project.root / "data").unlink()
    assert project.spyweb("state", "get", "--job", "front_page", "cursor").stdout == "7\n"
    assert not (project.root / "data").exists()
