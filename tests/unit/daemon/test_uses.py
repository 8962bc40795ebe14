"""`spyweb check --permissions`: what the source of a job seems to need, beside what it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from spyweb.daemon.uses import UseView, view_uses


def uses(root: Path, config: str = "", **files: str) -> dict[tuple[str, str], UseView]:
    (root / "config.toml").write_text(config)
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path = path.with_suffix(".toml" if name.endswith("config") else ".lua")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {(view.job, view.key): view for view in view_uses(root)}


def test_functions_and_literals_are_found(tmp_path: Path) -> None:
    found = uses(
        tmp_path,
        jobs__x="""
            -- http_post("https://comment.test/")
            local page = http_get("https://api.test/v1?x=" .. env_get("TOKEN"))
            http_request { url = 'http://other.test:8080/', proxy = PROXY }
            state.set { scope = "orders", key = "k", value = 1 }
            db_query([[SELECT 1]]) global_store_incr("n", 0, 1)
        """,
    )
    assert {key: list(view.functions) for (_, key), view in found.items()} == {
        "net": ["http_get", "http_request"],
        "env": ["env_get"],
        "state": ["state.set"],
        "db": ["db_query"],
        "global_store": ["global_store_incr"],
    }
    assert found["x", "net"].literals == ["api.test", "other.test:8080"]
    assert found["x", "env"].literals == ["TOKEN"]
    assert found["x", "state"].literals == ["orders"]
    assert found["x", "net"].may == ["*"]


@pytest.mark.parametrize(
    "lua",
    [
        'task("a"):command("make")',
        'task("a"):command "make"',
        'task("a"):command({ "/usr/bin/make", "all" })',
        'task({ name = "a", command = "make" })',
        'task{ name = "a", command = { "/usr/bin/make" } }',
    ],
)
def test_a_task_that_is_a_command_needs_it(tmp_path: Path, lua: str) -> None:
    assert uses(tmp_path, jobs__x=lua)["x", "exec"].functions == ["task"]


def test_what_only_looks_like_a_use_is_none(tmp_path: Path) -> None:
    lua = 'local state = "up" log("it is " .. state .. "!") task("a"):command(function() log("x") end)'
    assert uses(tmp_path, jobs__x=lua) == {}
    assert uses(tmp_path, jobs__x='cmd{ command = "make" }')["x", "exec"].functions == ["cmd"]


def test_modules_that_are_required_are_looked_at_once(tmp_path: Path) -> None:
    found = uses(
        tmp_path,
        jobs__x='local a = require("lib.a") require "lib.b"',
        lib__a='require("lib.b") http_get("https://a.test/")',
        lib__b='require("lib.a") notify("t", "b")',
    )
    assert found["x", "net"].literals == ["a.test"]
    assert found["x", "notify"].functions == ["notify"]


def test_what_is_written_and_not_permitted_is_marked(tmp_path: Path) -> None:
    config = '[permissions]\nnet = ["a.test"]\nenv = ["A"]\nstate = ["orders"]\n'
    lua = 'http_get("https://a.test/") http_get("https://b.test/") env_get("SPYWEB_B") state.get { scope = "prices" }'
    found = uses(tmp_path, config, jobs__x=lua)
    assert found["x", "net"].refused == ["b.test"]
    assert found["x", "env"].refused == ["B"]
    assert found["x", "state"].refused == ["prices"]


def test_a_channel_that_is_told_is_named(tmp_path: Path) -> None:
    config = '[permissions]\nnotify = ["ops"]\n[channels.ops]\nwebhook = "https://a.test/"\n'
    config += '[channels.phone]\nwebhook = "https://b.test/"\n'
    lua = 'notify{ channel = "phone", title = "x" } notify{channel="ops", title="x"} post { channel = "#general" }'
    found = uses(tmp_path, config, jobs__x=lua)["x", "notify"]
    assert (found.literals, found.refused, found.may) == (["ops", "phone"], ["phone"], ["ops"])


def test_a_restriction_is_shown_where_nothing_needs_it(tmp_path: Path) -> None:
    found = uses(tmp_path, "[permissions]\ndb = false\n", jobs__x="-- /// job\n-- permissions = { net = [] }\n-- ///\n")
    assert found["x", "db"].may == ["false"]
    assert (found["x", "net"].may, found["x", "net"].own) == (["*"], [])


def test_a_monitor_needs_its_addresses(tmp_path: Path) -> None:
    monitor = """
        name = "w"
        url = "https://page.test/"
        selector = "p"
        fields = ["t:p"]
        [webhook]
        enabled = true
        url = "https://hook.test/"
        [proxy]
        enabled = true
        urls = ["http://proxy.test:3128"]
    """
    found = uses(tmp_path, '[permissions]\nnet = ["page.test"]\n', jobs__w__config=monitor)
    assert found["w", "net"].literals == ["hook.test", "page.test", "proxy.test:3128"]
    assert found["w", "net"].refused == ["hook.test", "proxy.test:3128"]
    assert "notification" in found["w", "notify"].functions


CHECKS = """jobs = [
  { name = "site", check = "http", url = "https://site.test/" },
  { name = "mail", check = "tcp", host = "mail.test", port = 25 },
  { name = "certificate", check = "tls", host = "site.test" },
  { name = "asked", check = "dns", host = "zone.test", server = "ns.test:5353" },
  { name = "zone", check = "dns", host = "zone.test" },
  { name = "reached", check = "ping", host = "2001:db8::1" },
]
"""


def test_a_check_needs_the_host_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(CHECKS)
    found = uses(tmp_path, '[permissions]\nnet = ["site.test:443", "mail.test:587", "zone.test"]\n')
    assert {job: (view.literals, view.refused) for (job, key), view in found.items() if key == "net"} == {
        "site": (["site.test"], []),
        "mail": (["mail.test:25"], ["mail.test:25"]),
        "certificate": (["site.test"], []),
        "asked": (["ns.test:5353"], ["ns.test:5353"]),
        "zone": (["zone.test"], []),
        "reached": (["2001:db8::1"], ["2001:db8::1"]),
    }


def test_the_server_is_a_row_of_its_own(tmp_path: Path) -> None:
    found = uses(tmp_path, "[server.permissions]\ndb = false\n", server__init='function get:x() db_exec("x") end')
    assert (found["server", "db"].functions, found["server", "db"].may) == (["db_exec"], ["false"])


@pytest.mark.parametrize("lua", ["", '"', "http_get(", 'scope = "', 'x.http_get("http://[")', 'env_get "A" require ""'])
def test_any_text_will_do(lua: str, tmp_path: Path) -> None:
    uses(tmp_path, jobs__x=lua)
