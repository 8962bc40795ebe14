"""The checks of a policy, their texts, and what they are made of."""

from __future__ import annotations

import tomllib

import pytest

from spyweb.permissions.hosts import read_net
from spyweb.permissions.policy import (
    ANYTHING,
    MOST,
    USUAL,
    Audit,
    ExecRule,
    FilesRule,
    Grants,
    Policy,
    Refusal,
    item_of,
    job_table,
    namespace_of,
    policy_of,
    quoted,
    read_state,
)
from spyweb.settings.permissions import take_grants
from spyweb.settings.reading import Reading
from spyweb.settings.tables import TomlTable, parse_table
from spyweb.store.model.entries import GLOBAL, agent_namespace, job_namespace, scope_namespace
from tests.fakes.ops import PRICES


def granting(**keys: object) -> Policy:
    return policy_of(Grants(**keys))  # type: ignore[arg-type]


def said(refusal: Refusal | str | None, function: str = "op") -> str:
    assert isinstance(refusal, Refusal)
    return refusal.text(function, "x")


def test_equal_settings_share_one_policy() -> None:
    assert policy_of(Grants(net=read_net(["a.test"]))) is policy_of(Grants(net=read_net(["a.test"])))
    assert policy_of(USUAL) is policy_of(USUAL)


def test_a_refusal_names_the_key_to_add() -> None:
    assert said(granting(net=read_net([])).host("api.example.com", 443), "http_get") == (
        "http_get: 'x' may not reach api.example.com:443: "
        'add "api.example.com" to [jobs.x.permissions] net in config.toml'
    )


def test_a_name_that_led_to_an_address_is_permitted_by_either() -> None:
    policy = granting(net=read_net(["api.test", "10.0.0.0/8"]))
    assert policy.address("api.test", 443, "192.0.2.1") is None
    assert policy.address("other.test", 443, "10.0.0.1") is None
    for host in ("other.test", "192.0.2.1"):  # an address is never permitted by a name
        assert said(policy.address(host, 443, "192.0.2.1"))
    both = policy_of(Grants(net=read_net(["api.test"])), Grants(net=read_net(["10.0.0.0/8"])))
    assert "its own settings" in said(both.address("api.test", 443, "192.0.2.1"))


def test_both_lists_must_permit_a_host() -> None:
    policy = policy_of(Grants(net=read_net(["*.test"])), Grants(net=read_net(["a.test", "b.example"])))
    assert policy.host("a.test", 443) is None
    assert "[jobs.x.permissions]" in said(policy.host("b.example", 443))
    assert said(policy.host("b.test", 443)).endswith('add "b.test" to net under permissions in its own settings')


def test_a_numeric_spelling_is_shown_as_the_address_that_it_is() -> None:
    refused = said(granting(net=read_net(["example.com"])).host("0x7f.1", 80))
    assert 'reach 127.0.0.1:80, written 0x7f.1: add "127.0.0.1" to' in refused


def test_a_name_that_only_an_address_may_permit_is_refused_to_a_proxy() -> None:
    policy = granting(net=read_net(["10.0.0.0/8", "a.test"]))
    assert policy.host("internal.test", 80) is None
    assert policy.host("internal.test", 80, proxied=True) is not None
    assert policy.host("10.0.0.1", 80, proxied=True) is None
    assert policy.host("a.test", 80, proxied=True) is None


def test_an_address_that_is_not_permitted_is_named_with_its_host() -> None:
    policy = granting(net=read_net(["10.0.0.0/8"]))
    assert policy.address("internal.test", 80, "10.0.0.1") is None
    assert "reach internal.test:80, which is 192.0.2.1: add" in said(policy.address("internal.test", 80, "192.0.2.1"))


@pytest.mark.parametrize(
    ("command", "permitted"),
    [
        (["/usr/bin/rsync", "-a"], True),
        (["/usr/bin/rsync"], True),
        (["/usr/bin/rsync2"], False),
        (["rsync"], False),
        (["/usr/bin/systemctl", "reload", "nginx"], True),
        (["/usr/bin/systemctl", "reload", "nginx", "--now"], True),
        (["/usr/bin/systemctl", "reload"], False),
        (["/usr/bin/systemctl", "stop", "nginx"], False),
        ("/usr/bin/rsync -a", False),
        ([], False),
    ],
)
def test_a_command_is_compared_word_by_word(command: str | list[str], permitted: bool) -> None:
    policy = granting(exec=(ExecRule(("/usr/bin/rsync",)), ExecRule(("/usr/bin/systemctl", "reload", "nginx"))))
    assert (policy.exec(command) is None) == permitted


def test_what_a_script_has_written_stays_on_one_line() -> None:
    assert "\n" not in said(policy_of(USUAL).exec(["/bin/x\ny"]), "exec.run")
    assert "\n" not in said(granting(net=read_net([])).host("\n:", 80), "http_get")


def test_commands_are_off_until_they_are_listed() -> None:
    assert not ANYTHING.may_exec
    assert said(ANYTHING.exec(["/bin/true"])).endswith('add "/bin/true" to [jobs.x.permissions] exec in config.toml')
    assert said(ANYTHING.exec("true")).endswith('add "*" to [jobs.x.permissions] exec in config.toml')
    assert granting(exec=None).exec("true") is None
    assert granting(exec=None).programs == ()


def test_a_command_has_the_variables_that_its_entry_lists_and_no_others() -> None:
    rsync = ["/usr/bin/rsync", "-a"]
    policy = granting(exec=(ExecRule(("/usr/bin/rsync",), frozenset({"RSYNC_RSH"})), ExecRule(("/bin/git", "pull"))))
    assert policy.exec(rsync, ["RSYNC_RSH"]) is None
    assert policy.programs == ("/usr/bin/rsync", "/bin/git")
    assert said(policy.exec(rsync, ["RSYNC_RSH", "LANG"])) == (
        "op: 'x' may not set LANG for /usr/bin/rsync: add { command = [\"/usr/bin/rsync\"], "
        'env = ["LANG", "RSYNC_RSH"] } to [jobs.x.permissions] exec in config.toml'
    )
    assert 'add { command = ["/bin/git", "pull"], env = ["A"] }' in said(policy.exec(["/bin/git", "pull", "x"], ["A"]))
    assert 'add { command = ["/bin/id"], env = ["A"] } to' in said(policy.exec(["/bin/id", "x"], ["A"]))
    assert granting(exec=None).exec(rsync, ["PATH", "LD_PRELOAD"]) is None
    both = policy_of(Grants(exec=None), Grants(exec=(ExecRule(("/usr/bin/rsync",)),)))
    assert "under permissions in its own settings" in said(both.exec(rsync, ["RSYNC_RSH"]))


def test_a_job_may_run_commands_only_where_both_lists_say_so() -> None:
    some = (ExecRule(("/bin/true",)),)
    assert granting(exec=some).may_exec
    assert not policy_of(Grants(exec=some), Grants(exec=())).may_exec
    assert not policy_of(USUAL, Grants(exec=some)).may_exec


def test_a_test_runs_no_command() -> None:
    policy = granting(exec=None).without_exec()
    assert said(policy.exec("true")).endswith("give spyweb test the flag --allow-exec")
    assert not policy.may_exec
    assert "in config.toml" in said(ANYTHING.without_exec().exec("true"))  # the flag would not help


def test_a_path_is_permitted_below_a_root_and_the_innermost_counts() -> None:
    policy = policy_of(
        Grants(files=FilesRule(frozenset(), ("/srv", "/srv/www"))),
        Grants(files=FilesRule(frozenset(), ("/srv/www/a",))),
    )
    assert policy.path("/srv/www/a/index.html") == "/srv/www/a"
    assert "its own settings" in said(policy.path("/srv/www/b"))
    assert "[jobs.x.permissions]" in said(policy.path("/srvother"))
    assert policy.roots == ("/srv", "/srv/www", "/srv/www/a")
    assert granting(files=FilesRule(frozenset(), ("/",))).path("/etc/x") == "/"


@pytest.mark.parametrize(
    ("item", "namespace"),
    [
        ("orders", scope_namespace("orders")),
        ("agent:local", agent_namespace("local")),
        ("agent:web", agent_namespace("web")),
        ("job:prices", job_namespace(PRICES)),
        ("scope:agent:web", scope_namespace("agent:web")),
        ("scope:", scope_namespace("")),
        ("scope:*", scope_namespace("*")),
        ("state", scope_namespace("state")),
        ("global", scope_namespace(GLOBAL)),
    ],
)
def test_an_item_of_state_stands_for_one_namespace_and_back(item: str, namespace: str) -> None:
    assert namespace_of(item) == namespace
    assert item_of(namespace) == item


def test_a_table_s_name_is_toml_whatever_the_job_is_called() -> None:
    for job in ("x", "größe", 'a"b\\c\n'):
        table = tomllib.loads(f"[{job_table(job)}]\nx = {quoted(job)}\n")["jobs"][job]["permissions"]
        assert table == {"x": job}


def test_only_restricted_keys_are_looked_at() -> None:
    assert ANYTHING.restricted == {"exec", "files"}
    assert granting(db=False).restricted == {"db"}
    assert policy_of(Grants(), Grants(notify=False)).restricted == {"notify"}
    assert Grants() == Grants(exec=None)


def test_a_list_is_shown_as_settings_write_it() -> None:
    policy = policy_of(
        Grants(
            net=read_net(["b.test:80", "*.a.test", "10.0.0.0/8", "::1", "[::1]:80", "2001:db8::/32"]),
            exec=(ExecRule(("/bin/a", "b")), ExecRule(("/bin/c",), frozenset({"X", "A"}))),
            files=FilesRule(frozenset({"job"}), ("/srv",)),
            env=frozenset({"B", "A"}),
            db=False,
            state=read_state([("orders", False), ("agent:x", True), ("*", True)]),
        )
    )
    assert policy.items("net") == [["*.a.test", "::1", "[::1]:80", "b.test:80", "10.0.0.0/8", "2001:db8::/32"]]
    assert policy.items("exec") == [["/bin/a b", "/bin/c (with A, X)"]]
    assert policy.items("files") == [["job", "/srv"]]
    assert policy.items("env") == [["A", "B"]]
    assert policy.items("db") == [["false"]]
    assert policy.items("notify") == [["true"]]
    assert policy.items("state") == [["orders", "agent:x (read only)", "* (read only)"]]
    assert ANYTHING.items("net") == [["*"]]


def test_the_block_permits_what_was_used_and_nothing_else() -> None:
    audit = Audit()
    for check, *arguments in (
        ("host", "example.com", 443),
        ("host", "2001:db8::1", 80),
        ("exec", ["/usr/bin/rsync", "-a"]),
        ("folder", "job"),
        ("path", "/srv/www"),
        ("state", "scope:orders", False),
        ("state", "scope:orders", True),
        ("state", "state", False),
        ("db",),
    ):
        audit.note(str(check), *arguments)
    table = parse_table(audit.block("x"), "config.toml")
    assert isinstance(table, TomlTable)
    problems: list[object] = []
    reading = Reading([table.table("jobs", "x", "permissions")], problems)  # type: ignore[arg-type]
    policy = policy_of(take_grants(reading, Grants()))
    reading.finish()
    assert not problems
    assert policy.host("example.com", 443) is None
    assert policy.host("example.com", 80) is not None
    assert policy.host("2001:db8::1", 80) is None
    assert policy.exec(["/usr/bin/rsync", "x"]) is None
    assert policy.exec(["/bin/true"]) is not None
    assert policy.folder("job") is None
    assert policy.folder("shared") is not None
    assert policy.path("/srv/www/a") == "/srv/www"
    assert policy.state("scope:orders", True) is None
    assert policy.state("state", False) is None
    assert policy.state("state", True) is not None
    assert policy.db() is None
    assert policy.global_store() is not None
    assert policy.notify() is not None


def test_shell_text_needs_everything() -> None:
    audit = Audit()
    audit.note("exec", "true | cat")
    assert tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["exec"] == ["*"]


def test_what_is_noted_is_bounded() -> None:
    audit = Audit()
    for number in range(MOST + 10):
        audit.note("host", f"h{number}.test", 80)
    assert len(tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["net"]) == MOST


def test_a_command_is_shown_with_its_variables() -> None:
    audit = Audit()
    audit.note("exec", ["/bin/sh", "x"], [])
    audit.note("exec", ["/bin/sh", "y"], ["TOKEN", "LANG"])
    with_variables = {"command": ["/bin/sh"], "env": ["LANG", "TOKEN"]}
    assert tomllib.loads(audit.block("x"))["jobs"]["x"]["permissions"]["exec"] == ["/bin/sh", with_variables]
