"""What a monitor watches, and everything that can be wrong with how it says so."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spyweb.incidents.policy import Level
from spyweb.model import (
    Cron,
    Every,
    Field,
    FirstFind,
    Monitor,
    Never,
    Notification,
    OnEmpty,
    OnHookError,
    Proxies,
    Rotation,
    Webhook,
)
from spyweb.settings.alerts import AlertChannelSettings, AlertSettings
from spyweb.settings.sections import DaemonSettings
from spyweb.settings.tables import TomlTable, parse_table
from spyweb.specs.monitor_file import TAKEN, absolute_url, read_field, selector_problem
from spyweb.specs.parse import NO_SETTINGS, JobFile, JobPlace, parse_job

PLACE = JobPlace(file="jobs/w/config.toml", folder="jobs/w", name="w", is_monitor=True)
SETTINGS = replace(NO_SETTINGS, daemon=DaemonSettings(data_dir=Path("/data"), default_interval_ms=77_000))
OWN = {"name": '"Watch"', "url": '"https://example.com/a"', "selector": '".item"', "fields": '["title:h2"]'}


def text_of(**changed: str | None) -> str:
    keys = {**OWN, **changed}
    return "".join(f"{key} = {value}\n" for key, value in keys.items() if value is not None)


def table(text: str, file: str = PLACE.file, *path: str) -> TomlTable:
    parsed = parse_table(text, file)
    assert isinstance(parsed, TomlTable)
    return parsed.table(*path)


def draft(more: str | None = "", override: str | None = "", **changed: str | None) -> JobFile:
    return parse_job(
        table(text_of(**changed) + (more or "")),
        PLACE,
        override=table(f"[jobs.watch]\n{override}", "config.toml", "jobs", "watch"),
        settings=replace(SETTINGS, defaults=TomlTable(file="config.toml", path=("defaults",))),
    )


def monitor(more: str | None = "", override: str | None = "", **changed: str | None) -> Monitor:
    found = draft(more, override, **changed)
    assert not found.problems
    assert found.spec.monitor
    return found.spec.monitor


def problems(more: str | None = "", **changed: str | None) -> list[str]:
    return [str(problem).removeprefix(f"{PLACE.file}:") for problem in draft(more, **changed).problems]


def test_a_selector_that_does_not_parse_is_told_where_it_stands_be_that_in_an_override() -> None:
    spec = draft(override="selector = 'b['\n").spec
    assert str(selector_problem(spec, "selector", "no CSS")) == "config.toml:2: jobs.watch.selector: no CSS"
    assert str(selector_problem(spec, "fields", "t: no CSS")) == f"{PLACE.file}:4: fields: t: no CSS"


def test_a_line_that_moves_makes_no_other_monitor() -> None:
    assert monitor("") == replace(monitor(""), places={})


def test_the_least_that_a_monitor_says_leaves_the_rest_at_its_default() -> None:
    found = draft()
    assert found.problems == found.warnings == []
    assert (found.spec.id, found.spec.name, found.spec.schedule) == ("watch", "Watch", Every(period_ms=77_000))
    assert found.spec.monitor == Monitor(
        urls=("https://example.com/a",),
        selector=".item",
        fields=(Field(name="title", selector="h2"),),
        notification=Notification(),
    )


def test_everything_that_a_monitor_can_say() -> None:
    more = """
[headers]
"User-Agent" = "me"
Accept = ""
[proxy]
enabled = true
rotate = "Sticky"
urls = ["socks5://proxy1:1080", "http://proxy2:8080"]
[webhook]
url = "https://hooks.example/x"
headers = { Authorization = "Bearer t" }
secret = "env:HOOK_SECRET"
[notification]
timeout = 5000
title = "Found {item_count}"
body = "{title}"
"""
    found = monitor(
        more,
        workers="4",
        keywords='["a", "B c"]',
        search_fields='["title"]',
        hash_fields='["title"]',
        track='["price"]',
        first='"silent"',
        fields='["title:h2", "price:.price"]',
        debug="true",
        on_hook_error='"fail"',
        expect_status='[200, "400-499"]',
        min_items="2",
        on_empty='"fail"',
        empty_after="5",
    )
    assert found == Monitor(
        urls=("https://example.com/a",),
        selector=".item",
        fields=(Field(name="title", selector="h2"), Field(name="price", selector=".price")),
        workers=4,
        keywords=("a", "B c"),
        search_fields=("title",),
        hash_fields=("title",),
        track=("price",),
        first=FirstFind.SILENT,
        headers=(("User-Agent", "me"), ("Accept", "")),
        proxies=Proxies(urls=("socks5://proxy1:1080", "http://proxy2:8080"), rotation=Rotation.STICKY),
        webhook=Webhook(
            url="https://hooks.example/x", headers=(("Authorization", "Bearer t"),), secret="env:HOOK_SECRET"
        ),
        notification=Notification(title="Found {item_count}", body="{title}", timeout_ms=5000),
        debug=True,
        on_hook_error=OnHookError.FAIL,
        expect_status=((200, 200), (400, 499)),
        min_items=2,
        on_empty=OnEmpty.FAIL,
        empty_after=5,
    )


@pytest.mark.parametrize(
    ("key", "value", "schedule"),
    [
        ("interval", "60", Every(period_ms=60_000)),
        ("interval", "0.5", Every(period_ms=500)),
        ("interval", '"1h"', Every(period_ms=3_600_000)),
        ("every", '"2m"', Every(period_ms=120_000)),
        ("every", '"never"', Never()),
        ("after", '"other"', Never()),
    ],
)
def test_interval_is_every_in_a_monitors_words(key: str, value: str, schedule: object) -> None:
    assert draft(**{key: value}).spec.schedule == schedule


def test_a_schedule_from_outside_is_stronger_than_the_interval() -> None:
    assert draft(override="cron = '0 * * * *'", interval="5").spec.schedule == Cron(
        expression="0 * * * *", timezone="UTC"
    )
    assert draft(override="interval = 5", every='"1h"').spec.schedule == Every(period_ms=5_000)


def test_urls_are_a_queue_and_stronger_than_url() -> None:
    found = monitor(urls='["https://a.b/1", "https://a.b/2"]')
    assert (found.urls, found.is_queue) == (("https://a.b/1", "https://a.b/2"), True)
    assert not monitor().is_queue


def test_an_address_from_outside_hides_those_of_the_file() -> None:
    found = monitor(override="url = 'https://x.y'", urls='["https://a.b/1"]', url=None)
    assert (found.urls, found.is_queue) == (("https://x.y",), False)


@pytest.mark.parametrize(
    ("switch", "expected"), [("", True), ("enabled = true", True), ("enabled = false", False)], ids=str
)
def test_proxy_and_webhook_are_on_where_they_are_written_down(switch: str, expected: bool) -> None:
    found = monitor(f"[proxy]\nurls = ['http://p:1']\n{switch}\n[webhook]\nurl = 'https://w.x'\n{switch}")
    assert (found.proxies is not None, found.webhook is not None) == (expected, expected)


def test_one_switched_off_needs_nothing_else() -> None:
    found = monitor("[proxy]\nenabled = false\n[webhook]\nenabled = false\n[notification]\nenabled = false")
    assert (found.proxies, found.webhook, found.notification) == (None, None, None)


def test_a_switch_from_outside_leaves_the_rest_of_its_table_alone() -> None:
    found = monitor("[notification]\ntitle = 'mine'", override="[jobs.watch.notification]\nbody = 'yours'")
    assert found.notification == Notification(title="mine", body="yours")


@pytest.mark.parametrize(
    ("written", "name", "selector", "attribute"),
    [
        ("title:h2", "title", "h2", None),
        ("link:a@href", "link", "a", "href"),
        (" link : a > b @ data-x ", "link", "a > b", "data-x"),
        ("id:@data-id", "id", "", "data-id"),
        ("title:h2@text", "title", "h2", None),
        ("title", "title", "", None),
        ("title:", "title", "", None),
        ("first:li:first-child", "first", "li:first-child", None),
        ("mail:a[href*='@']", "mail", "a[href*='@']", None),
        ("mail:a[href*='@']@href", "mail", "a[href*='@']", "href"),
        ("mail:a[href='x@y.z']", "mail", "a[href='x@y.z']", None),
        ("svg:use@xlink:href", "svg", "use", "xlink:href"),
    ],
)
def test_the_short_form_of_a_field(written: str, name: str, selector: str, attribute: str | None) -> None:
    assert read_field(written) == Field(name=name, selector=selector, attribute=attribute)


def test_the_long_form_of_a_field() -> None:
    written = (
        '[{ name = "a", selector = "h2", att = "text" }, { name = "b", selector = "a", att = "href" }, { name = "c" }]'
    )
    assert monitor(fields=written).fields == (
        Field(name="a", selector="h2"),
        Field(name="b", selector="a", attribute="href"),
        Field(name="c", selector=""),
    )


def test_what_is_required_is_missed_all_at_once() -> None:
    assert sorted(problems(**dict.fromkeys(OWN, None))) == sorted(f" {key}: is required" for key in OWN)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("name", "' '", "can't be blank"),
        ("name", "5", "expected text"),
        ("url", "''", "can't be blank"),
        ("url", "'/page'", "expected an absolute URL"),
        ("url", "'example.com/page'", "expected an absolute URL"),
        ("url", "'https://'", "'https://' names no host"),
        ("url", "'https://[::1'", "'https://[::1' is no URL: "),
        ("url", "'https://a.b:99999'", "'https://a.b:99999' is no URL: "),
        ("url", f"'https://{'a' * 254}/'", "is no URL: a host name has 254 characters, at most 253 are allowed"),
        ("urls", f"['https://{'ü' * 254}/']", "is no URL: a host name has 254 characters"),
        ("url", '"https://a.b/\\n"', "can't hold line breaks"),
        ("url", "['https://a.b']", "expected text, not a list"),
        ("urls", "[]", "can't be an empty list"),
        ("urls", "'https://a.b'", "expected a list, each item an absolute URL"),
        ("urls", "['https://a.b', '/x']", "expected an absolute URL .* not '/x'"),
        ("selector", "'  '", "can't be blank"),
        ("fields", "[]", "can't be an empty list"),
        ("fields", "'title:h2'", "expected a list"),
        ("fields", "[5]", 'expected "name:selector"'),
        ("fields", "[':h2']", "a field has no name"),
        ("fields", "[{ selector = 'h2' }]", "a field has no name"),
        ("fields", "[{ name = 5 }]", "expected text, not 5"),
        ("fields", "['a:x', 'b:y', 'a:z']", "two fields are called 'a'"),
        ("interval", "0", "must be at least 10ms, not 0s"),
        ("interval", "'never'", "expected a number of seconds"),
        ("workers", "0", "must be at least 1, not 0"),
        ("keywords", "['a', ' ']", "a keyword can't be blank"),
        ("search_fields", "['titel']", """no field 'titel'; did you mean "title"?"""),
        ("hash_fields", "['zzz']", "no field 'zzz'"),
        ("track", "['titl']", """no field 'titl'; did you mean "title"?"""),
        ("first", "'silnt'", """expected "announce" or "silent" .* did you mean "silent"?"""),
        ("to", "['phone']", 'no channel "phone"'),
        ("to", "'phone'", "expected a list"),
        ("headers", "5", "expected a table"),
        ("proxy", "'http://p:1'", "expected a table"),
        ("on_hook_error", "'stop'", 'expected "skip" or "fail"'),
        (
            "expect_status",
            "'2xx'",
            'expected an HTTP status such as 404, a range such as "200-299", or a list of these',
        ),
        ("expect_status", "[200, true]", "expected an HTTP status"),
        ("expect_status", "'299-200'", "expected an HTTP status"),
        ("expect_status", "[]", "can't be an empty list"),
        ("min_items", "-1", "must be at least 0"),
        ("on_empty", "'stop'", 'expected "warn" or "fail"'),
        ("empty_after", "0", "must be at least 1"),
    ],
)
def test_a_wrong_value_is_one_problem_with_its_line(key: str, value: str, reason: str) -> None:
    (problem,) = problems(**{key: value})
    assert re.match(rf"\d+: {key}: ", problem), problem
    assert all(part in problem for part in reason.split(" .* ")), problem


def test_the_channels_that_it_notifies_are_those_of_config_toml() -> None:
    phone, boss = (AlertChannelSettings(name="phone"), AlertChannelSettings(name="boss", level=Level.CRITICAL))
    channels = {"phone": phone, "boss": boss}
    known = replace(SETTINGS, alerts=AlertSettings(channels=channels, names=frozenset(channels)))

    def of(to: str) -> JobFile:
        return parse_job(table(text_of(to=to)), PLACE, override=table("", "config.toml"), settings=known)

    right = of('["phone"]')
    assert right.spec.monitor
    assert (right.spec.monitor.to, right.problems, right.warnings) == (("phone",), [], [])
    (problem,) = of('["phone", "phon"]').problems
    assert str(problem) == f"""{PLACE.file}:5: to: no channel "phon"; did you mean "phone"?"""
    (warning,) = of('["boss"]').warnings
    assert warning.reason == 'the channel "boss" takes critical and above: items are info'


def test_a_field_tells_which_item_it_is_or_is_tracked() -> None:
    (problem,) = problems(track='["title"]', hash_fields='["title"]')
    assert problem == "5: track: 'title' is in hash_fields too: a field tells which item it is, or is tracked"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("[proxy]", "proxy.urls: is required"),
        ("[proxy]\nurls = []", "proxy.urls: can't be an empty list"),
        ("[proxy]\nurls = ['ftp://p:1']", 'proxy.urls: expected a URL that begins with "http://"'),
        ("[proxy]\nurls = ['p:1']", "proxy.urls: expected a URL that begins"),
        ("[proxy]\nurls = ['socks5://']", "proxy.urls: 'socks5://' names no host"),
        ("[proxy]\nurls = ['http://p']\nrotate = 'roundrobin'", 'proxy.rotate: .* did you mean "RoundRobin"'),
        ("[webhook]\nenabled = true", "webhook.url: is required"),
        ("[webhook]\nurl = ''", "webhook.url: can't be blank"),
        ("[webhook]\nurl = 'file:///etc/passwd'", "webhook.url: expected a URL that begins"),
        ("[webhook]\nurl = 'https://a.b'\nheaders = 5", "webhook.headers: expected a table"),
        ("[notification]\ntimeout = -1", "notification.timeout: must be at least 0"),
        ("[notification]\ntitle = 5", "notification.title: expected text"),
    ],
)
def test_a_wrong_table_is_one_problem_with_its_line(more: str, reason: str) -> None:
    (problem,) = problems(more)
    assert re.match(rf"\d+: {reason}", problem), problem


@pytest.mark.parametrize("scheme", ["http", "https", "socks4", "socks4a", "socks5", "socks5h"])
def test_these_proxies_are_known(scheme: str) -> None:
    url = f"{scheme}://user:secret@proxy.example:1080"
    assert monitor(f"[proxy]\nurls = ['{url}']").proxies == Proxies(urls=(url,))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "app:pages/1", "HTTPS://EXAMPLE.COM", "https://[::1]:8080/x y"])
def test_any_absolute_address_may_be_watched_because_a_hook_may_fetch_it(url: str) -> None:
    assert absolute_url(f" {url} ", ()) == url


@pytest.mark.parametrize(("name", "why"), TAKEN.items())
def test_a_field_whose_name_is_taken_is_doubted(name: str, why: str) -> None:
    found = draft(fields=f'["title:h2", "{name}:b"]')
    assert not found.problems
    assert [(warning.file, warning.line, warning.key, warning.reason) for warning in found.warnings] == [
        (PLACE.file, 4, "fields", f"a field had better not be called {name!r}: {why}")
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [("title h2", "title:h2"), ("price = .a > b", "price:.a > b"), (" .price", "name:.price"), ("li[x]", "li:[x]")],
)
def test_a_field_without_a_colon_that_has_a_selector_is_doubted(written: str, meant: str) -> None:
    found = draft(fields=f"['{written}']")
    assert not found.problems
    assert [str(warning) for warning in found.warnings] == [
        f"{PLACE.file}:4: fields: {written.strip()!r} has no colon, so takes the whole item; did you mean {meant!r}?"
    ]
    assert not draft(fields="['title', 'my name:h2', { name = 'a b' }]").warnings
    (long,) = draft(fields=f"['a b{'x' * 100_000}', '{written}']").warnings
    assert len(long.reason) < 300


def test_what_nobody_knows_is_a_warning_with_the_nearest_name() -> None:
    found = draft("[proxy]\nenabled = false\nurl = 'x'", slector="'x'", fields='[{ name = "a", selektor = "b" }]')
    assert [str(warning).partition(": ")[2] for warning in found.warnings] == [
        """fields: unknown key; did you mean "selector"? ('selektor' in a field)""",
        'proxy.url: unknown key; did you mean "urls"?',
        'slector: unknown key; did you mean "selector"?',
    ]
    assert found.problems == []


def test_the_same_from_outside_the_file_is_a_problem() -> None:
    found = draft(override="fields = [{ name = 'a', selektor = 'b' }]\nslector = 'x'")
    assert len(found.problems) == 2
    assert all(problem.file == "config.toml" for problem in found.problems)


def test_names_of_fields_are_not_looked_for_where_there_are_no_fields() -> None:
    assert len(problems(fields="[]", hash_fields="['x']")) == 1


@pytest.mark.parametrize(("more", "override"), [('on = [{ when = "is_big" }]\n', ""), ("", 'on = { when = "is_big" }')])
def test_a_condition_of_a_change_is_refused_since_no_hook_would_be_asked(more: str, override: str) -> None:
    (problem,) = draft(more, override).problems
    assert str(problem.key).endswith("on")
    assert "'when' is for script jobs" in problem.reason
