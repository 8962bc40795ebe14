"""Every op against every key of a policy: what each key refuses, and what it leaves alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from spyweb.errors import OpError
from spyweb.ops import catalog
from spyweb.ops.op import CATALOGUE, OpEffect, op
from spyweb.ops.world import Call
from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import KEYS, Audit, FilesRule, Grants, Policy, policy_of, read_state
from tests.fakes.commands import FakeCommands
from tests.fakes.ops import FakeHttp, ask, make_call, make_world, table

SCOPED = "write the scope orders"
OWN_STATE = "the state of agent local"

# For each key, lists that permit nothing of what it is about.
NOTHING: dict[str, Grants] = {
    "net": Grants(net=read_net([])),
    "exec": Grants(exec=()),
    "files": Grants(files=FilesRule(frozenset())),
    "env": Grants(env=frozenset()),
    "db": Grants(db=False),
    "global_store": Grants(global_store=False),
    "notify": Grants(notify=False),
    "state": Grants(state=read_state([])),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One op: the key that it falls under, arguments with which it works, and how its refusal begins."""

    key: str | None
    arguments: Sequence[object] = ()
    deed: str = ""
    others: Sequence[Sequence[object]] = field(default=())  # further arguments that are refused


def _state(deed: str, *arguments: object, scoped: bool = False) -> Row:
    others = [[table(scope=b"orders", key=b"k", value=b"v", pattern=b"*")]] if scoped else []
    return Row("state", arguments, f"{deed} {OWN_STATE}", others)


_read, _write = partial(_state, "read"), partial(_state, "write")
_global = partial(Row, "global_store", deed="use the keys that all jobs share")
_net = partial(Row, "net", deed="reach example.com:")
_files = partial(Row, "files", deed="use its own folder")
_free = partial(Row, None)

MATRIX: dict[str, Row] = {
    "store_set": _free([b"k", b"v"]),
    "store_get": _free([b"k"]),
    "store_delete": _free([b"k"]),
    "global_store_set": _global([b"k", b"v"]),
    "global_store_get": _global([b"k"]),
    "global_store_delete": _global([b"k"]),
    "global_store_incr": _global([b"k", 0, 1]),
    "state.set": _write(b"k", b"v", scoped=True),
    "state.set_with_ttl": _write(b"k", b"v", 5),
    "state.get": _read(b"k", scoped=True),
    "state.exists": _read(b"k"),
    "state.delete": _write(b"k", scoped=True),
    "state.clear": _write(b"*"),
    "state.keys": _read(b"*", scoped=True),
    "state.list": _read(b"", scoped=True),
    "state.list_groups": Row("state", [], "read all scopes"),
    "state.update": Row("state", [table(scope=b"orders", key=b"k", ops=[])], SCOPED),
    "state.set_ttl": _write(b"k", 5),
    "state.get_ttl": _read(b"k"),
    "state.increment": _write(b"k"),
    "state.decrement": _write(b"k"),
    "state.append": _write(b"k", b"v"),
    "state.compare_swap": _write(b"k", None, b"v"),
    "state.list_push": _write(b"k", b"v"),
    "state.list_pop": _write(b"k"),
    "state.list_length": _read(b"k"),
    "state.history": _read(b"k"),
    "state.get_version": _read(b"k", 1),
    "state.rollback": _write(b"k", 1),
    "state.stats": _read(),
    "state.try_lock": _write(b"lock"),
    "state.lock": _write(b"lock", 1),
    "state.unlock": _write(b"lock"),
    "state.is_locked": _read(b"lock"),
    "http_get": _net([b"http://example.com/"]),
    "http_post": _net([b"https://example.com/", b"body"]),
    "http_request": _net([table(url=b"http://example.com/")]),
    "http_multipart": _net([b"http://example.com/", table(a=b"1")]),
    "tcp_probe": _net([b"example.com", 25]),
    "dns_query": _net([b"example.com", b"A"]),
    "ping": Row("net", [b"example.com"], "reach example.com"),
    "tls_probe": _net([b"example.com"]),
    "fs_read": _files([b"a.txt"]),
    "fs_read_binary": _files([b"a.png"]),
    "fs_append": _files([b"a.txt", b"x"], others=[[b"b.txt", b"x"]]),
    "fs_overwrite": _files([b"a.txt", b"x"]),
    "db_query": Row("db", [b"SELECT 1"], "use the database"),
    "exec.run": Row("exec", [b"true"], "run shell text", [[[b"/bin/true"]]]),
    "cmd": Row("exec", [table(command=b"true")], "run shell text"),
    "db_exec": Row("db", [b"CREATE TABLE IF NOT EXISTS t (a)"], "use the database"),
    "notify": Row(
        "notify", [b"title", b"body"], "show notifications", [[table(channel=b"phone", title=b"disk", level=b"info")]]
    ),
    "sleep": _free([0]),
    "_require": _free([b"state"]),
    "_tasks": _free([{}]),
    "_task": _free([0, b"success", 1, 1, b""]),
    "_tasks_skipped": _free([{}]),
    "_artifacts": _files([{1: b"*.txt"}]),
    "_consume": _files([{1: b"*.txt"}]),
    "file.copy": _files([table(src=b"a.txt", dest=b"b.txt")]),
    "file.line": _files([table(path=b"a.txt", line=b"x")]),
    "file.mkdir": _files([table(path=b"folder")]),
    "file.remove": _files([table(path=b"a.txt")]),
    "file.stat": _files([table(path=b"a.txt")]),
    "_template": _files([b"template.render", b"a.txt"]),
    "_template_file": _files([table(dest=b"a.txt"), b"x"]),
    "data.parse_yaml": _free([b"x" * (1 << 21)]),
    "_crypto": _free([b"sha256", b"x"]),
    "_at": Row("state", [b"other", b"state.get", 1, b"k"], "read the state of agent other"),
}


SHOWN_AS = {  # as scripts know them
    "_at": "state.get",
    "_artifacts": "artifacts",
    "_consume": "consumes",
    "_template": "template.render",
    "_template_file": "file.template",
}


@pytest.fixture
async def call(tmp_path: Path) -> AsyncIterator[Call]:
    world = make_world(root=tmp_path)
    async with world.sql:
        yield make_call(world, folder="jobs/prices")


def with_policy(call: Call, granted: Grants, own: Grants | None = None) -> Call:
    return make_call(call.world, folder=call.folder, policy=policy_of(granted, own))


async def outcome(call: Call, name: str, arguments: Sequence[object]) -> str:
    """What an op raises: an empty text when it was permitted, whatever became of it."""
    try:
        await ask(call, name, *arguments)
    except OpError as error:
        return str(error) if " may not " in str(error) else ""
    return ""


def test_every_op_is_placed_in_the_matrix() -> None:
    assert catalog.CATALOGUE.keys() == MATRIX.keys()


def test_every_key_has_a_list_that_permits_nothing() -> None:
    assert set(KEYS) == NOTHING.keys()


@pytest.mark.parametrize("name", MATRIX)
async def test_an_op_is_refused_by_its_own_key_alone(name: str, call: Call) -> None:
    row = MATRIX[name]
    for key, granted in NOTHING.items():
        for arguments in (row.arguments, *row.others):
            refused = await outcome(with_policy(call, granted), name, arguments)
            if key != row.key:
                assert refused == "", key
                continue
            shown = SHOWN_AS.get(name, name)
            assert refused.startswith(f"{shown}: 'prices' may not "), refused
            assert f"[jobs.prices.permissions] {key}" in refused or f"set {key} = true in [jobs.prices" in refused
            if arguments is row.arguments:
                assert row.deed in refused


@pytest.mark.parametrize("name", MATRIX)
async def test_the_job_s_own_settings_refuse_as_well(name: str, call: Call) -> None:
    row = MATRIX[name]
    for key, own in NOTHING.items():
        refused = await outcome(with_policy(call, Grants(), own), name, row.arguments)
        assert bool(refused) == (key == row.key), key
        assert not refused or "in its own settings" in refused


@pytest.mark.parametrize("name", MATRIX)
async def test_without_any_setting_every_op_but_commands_is_permitted_without_a_look(name: str, call: Call) -> None:
    refused = await outcome(call, name, MATRIX[name].arguments)
    assert bool(refused) == (MATRIX[name].key == "exec"), refused
    assert call.policy.restricted <= {"exec", "files"}  # neither of them is asked at the choke point


PERMITTED: dict[str, Grants] = {
    "net": Grants(net=read_net(["example.com", "10.0.0.0/8"])),
    "files": Grants(files=FilesRule(frozenset({"job"}))),
    "notify": Grants(notify=frozenset({"desktop", "phone"})),
    "state": Grants(state=read_state([("orders", False), ("agent:local", False), ("agent:other", True)])),
}


@pytest.mark.parametrize("name", [name for name, row in MATRIX.items() if row.key in PERMITTED])
async def test_what_a_list_names_is_permitted(name: str, call: Call) -> None:
    row = MATRIX[name]
    granted = PERMITTED[row.key or ""]
    for arguments in (row.arguments, *row.others):
        refused = await outcome(with_policy(call, granted), name, arguments)
        assert bool(refused) == (name == "state.list_groups"), refused


READS = [
    name for name, row in MATRIX.items() if row.key == "state" and row.deed.startswith("read the state of agent l")
]
WRITES = [name for name, row in MATRIX.items() if row.key == "state" and row.deed.startswith("write")]


@pytest.mark.parametrize("name", [*READS, *WRITES])
async def test_a_read_only_scope_can_be_read_and_not_written(name: str, call: Call) -> None:
    readable = Grants(state=read_state([("agent:local", True), ("orders", True)]))
    row = MATRIX[name]
    for arguments in (row.arguments, *row.others):
        refused = await outcome(with_policy(call, readable), name, arguments)
        assert bool(refused) == (name in WRITES), refused


async def test_a_refused_write_writes_nothing(call: Call) -> None:
    for name in WRITES:
        await outcome(with_policy(call, NOTHING["state"]), name, MATRIX[name].arguments)
    for name in ("global_store_set", "global_store_incr"):
        await outcome(with_policy(call, NOTHING["global_store"]), name, MATRIX[name].arguments)
    assert await call.world.store.values.keys("state", b"*", largest=1 << 20) == []
    assert await call.world.store.values.keys("global", b"*", largest=1 << 20) == []
    assert await call.world.store.locks.holder(b"lock") is None


@pytest.mark.parametrize("scope", [b"orders", 7, b"agent:local", b"job:other"])
async def test_a_scope_is_the_one_that_the_op_will_use(scope: object, call: Call) -> None:
    """A number is a scope's name too; one that is spelt like another family is that of a scope all the same."""
    elsewhere = with_policy(call, Grants(state=read_state([("agent:local", False), ("job:other", False)])))
    refused = await outcome(elsewhere, "state.set", [{b"scope": scope, b"key": b"k", b"value": 1}])
    shown = scope.decode() if isinstance(scope, bytes) else str(scope)
    assert f"write the scope {shown}:" in refused


async def test_an_unusable_scope_is_refused_by_the_op_itself(call: Call) -> None:
    narrowed = with_policy(call, NOTHING["state"])
    unusable: Sequence[object] = (None, True, b"\xff", {})
    for scope in unusable:
        with pytest.raises(OpError, match="scope"):
            await ask(narrowed, "state.get", {b"scope": scope, b"key": b"k"})


async def test_each_channel_is_permitted_by_its_name_and_the_desktop_by_one_of_its_own(call: Call) -> None:
    phone, desktop = [table(channel=b"phone", title=b"disk")], [b"title", b"body"]
    narrowed = with_policy(call, Grants(notify=frozenset({"phone"})))
    assert await outcome(narrowed, "notify", phone) == ""
    assert await outcome(narrowed, "notify", [table(channel=b"ops", title=b"disk")]) == (
        "notify: 'prices' may not notify the channel ops: "
        'add "ops" to [jobs.prices.permissions] notify in config.toml'
    )
    assert 'add "desktop" to [jobs.prices.permissions] notify' in await outcome(narrowed, "notify", desktop)
    assert 'add "phone" to' in await outcome(with_policy(call, Grants(notify=False)), "notify", phone)


async def test_shared_files_have_an_item_of_their_own(call: Call, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/a.txt").write_text("all")
    job_only = with_policy(call, Grants(files=FilesRule(frozenset({"job"}))))
    shared_only = with_policy(call, Grants(files=FilesRule(frozenset({"shared"}))))
    assert await ask(call, "fs_read", b"a.txt") == [b"all"]
    assert await ask(job_only, "fs_read", b"a.txt") == [None]  # it does not fall back
    assert "use the folder shared/" in await outcome(job_only, "fs_read", [b"shared/a.txt"])
    assert "use the folder shared/" in await outcome(job_only, "fs_append", [b"shared/a.txt", b"x"])
    assert await ask(shared_only, "fs_read", b"shared/a.txt") == [b"all"]
    assert (tmp_path / "shared/a.txt").read_text() == "all"


async def test_what_the_server_is_refused_names_its_own_table(call: Call) -> None:
    server = make_call(call.world, policy=policy_of(NOTHING["db"], is_server=True))
    refused = await outcome(server, "db_query", [b"SELECT 1"])
    assert refused == (
        "db_query: the server may not use the database: set db = true in [server.permissions] in config.toml"
    )


async def test_an_audit_notes_what_was_used(call: Call) -> None:
    audit = Audit()
    audited = make_call(call.world, folder=call.folder, audit=audit)
    for name in ("state.get", "http_get", "db_query", "fs_append"):
        await outcome(audited, name, MATRIX[name].arguments)
    await outcome(audited, "state.set", [table(scope=b"orders", key=b"k", value=b"v")])
    for arguments in ([table(channel=b"phone", title=b"disk")], [b"title", b"body"]):
        await outcome(audited, "notify", arguments)
    assert audit.block("prices").splitlines() == [
        "[jobs.prices.permissions]",
        'net = ["example.com:80"]',
        "exec = []",
        'files = ["job"]',
        "env = []",
        'state = ["orders", { scope = "agent:local", read_only = true }]',
        "db = true",
        "global_store = false",
        'notify = ["desktop", "phone"]',
    ]


def test_the_default_policy_is_the_one_without_settings() -> None:
    assert policy_of(Policy().granted) == Policy()


# Dry runs


def test_an_op_that_says_nothing_of_its_effect_is_taken_for_one_that_writes() -> None:
    async def unsaid(call: Call) -> None:
        """Do something."""

    op()(unsaid)
    assert CATALOGUE.pop("unsaid").effect is OpEffect.WRITES


async def all_that_is_there(call: Call, root: Path) -> list[object]:
    values, store = call.world.store.values, call.world.store
    entries = [(each.namespace, each.key, each.entry.version) async for each in values.export()]
    files = sorted(
        (str(path), path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in (root / "jobs").rglob("*")
    )
    commands, http = call.world.commands, call.world.http
    assert isinstance(commands, FakeCommands)
    assert isinstance(http, FakeHttp)
    written = [fetch.method for fetch in http.asked if fetch.method not in ("GET", "HEAD")]
    return [entries, await store.locks.list(), files, list(commands.commands), written]


async def dry_refusal(call: Call, name: str, arguments: Sequence[object]) -> str:
    try:
        await ask(call, name, *arguments)
    except OpError as error:
        return str(error) if str(error).startswith("not in a dry run: ") else ""
    return ""


@pytest.mark.parametrize("name", MATRIX)
async def test_in_a_dry_run_an_op_reads_says_what_it_would_do_or_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, row = make_world(root=tmp_path, commands=FakeCommands()), MATRIX[name]
    shown: list[object] = []

    async def show(*given: object) -> str:
        shown.append(given)
        return ""

    monkeypatch.setattr(world.desktop, "show", show)
    folder = tmp_path / "jobs/prices"
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("one")
    async with world.sql:
        usual = make_call(world, policy=policy_of(Grants()), is_recorded=True)
        await ask(usual, "state.set", table(scope=b"orders", key=b"k", value=b"v"))
        await ask(usual, "store_set", b"k", b"1")
        dry = structs.replace(usual, is_dry=True)
        before = await all_that_is_there(usual, tmp_path)
        for arguments in (row.arguments, *row.others):
            writes = CATALOGUE[name].effect is OpEffect.WRITES
            assert await dry_refusal(dry, name, arguments) == (f"not in a dry run: {name}" if writes else "")
        assert await all_that_is_there(usual, tmp_path) == before
        assert shown == []


async def test_in_a_dry_run_what_only_an_argument_tells_is_refused_as_well(tmp_path: Path) -> None:
    world = make_world(root=tmp_path)
    async with world.sql:
        usual = make_call(world, policy=policy_of(Grants()))
        await ask(usual, "db_exec", b"CREATE TABLE t (a)")
        insert = b"INSERT INTO t VALUES (1) RETURNING a"
        await ask(usual, "db_query", insert)  # it is prepared by now
        dry = structs.replace(usual, is_dry=True)
        for arguments, shown in (
            (("db_query", insert), "db_query with a statement that writes"),
            (("db_query", b"CREATE TEMP TABLE u (a)"), "db_query with a statement that writes"),
            (("http_request", table(url=b"http://example.com/", method=b"delete")), "http_request with delete"),
            (("tcp_probe", b"example.com", 25, table(send=b"QUIT")), "tcp_probe with send"),
            (("_at", b"other", b"state.lock", 1, b"n"), "state.lock"),
        ):
            with pytest.raises(OpError) as error:
                await ask(dry, *arguments)
            assert str(error.value) == f"not in a dry run: {shown}"
        assert await ask(dry, "db_query", b"SELECT count(*) AS n FROM t") == [[{"n": 1}]]
        assert await ask(usual, "db_query", insert) == [[{"a": 1}]]
        await ask(dry, "http_request", table(url=b"http://example.com/", method=b"head"))


async def test_in_a_dry_run_each_thing_that_would_be_done_is_a_line_of_the_log(tmp_path: Path) -> None:
    lines: list[bytes] = []
    world = make_world(root=tmp_path, commands=FakeCommands())
    dry = make_call(world, policy=policy_of(Grants()), is_dry=True, log=lambda _, text: lines.append(text))
    (tmp_path / "shared").mkdir()
    for name, *arguments in (
        ("file.mkdir", table(path=b"shared/web/sites")),
        ("file.mkdir", table(path=b"shared/web/sites")),
        ("_template_file", table(dest=b"shared/web/sites/a"), b"text"),
        ("file.copy", table(src=b"shared/web/sites/a", dest=b"shared/b")),
        ("file.line", table(path=b"shared/web/sites/c", line=b"x")),
        ("file.remove", table(path=b"none")),
        ("exec.run", [b"ls", b"-l"], table(unless=b"true")),
        ("_artifacts", {1: b"*.txt"}),
    ):
        outcome = (await ask(dry, str(name), *arguments))[0]
        assert outcome is not None, name
    assert lines == [
        b"dry run: file.mkdir: 'shared/web/sites': it would be made",
        b"dry run: file.mkdir: 'shared/web/sites': it would be made",
        b"dry run: file.template: 'shared/web/sites/a': it would be written",
        b"dry run: file.copy: 'shared/b': it would be written",
        b"dry run: file.line: 'shared/web/sites/c': it would be written",
        b"dry run: exec.run: would run `ls -l`",
        b"dry run: artifacts: would copy what matches *.txt",
    ]
    assert not any((tmp_path / "shared").iterdir())
    assert not (tmp_path / "jobs").exists()
