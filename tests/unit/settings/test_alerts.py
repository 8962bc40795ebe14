"""Channels and policies, as config.toml and jobs say them, and what is said about wrong ones."""

from __future__ import annotations

from datetime import time
from pathlib import Path

import pytest

from spyweb.incidents.policy import NOBODY, AlertPolicy, Escalation, Flapping, Level, QuietHours
from spyweb.model import JobId
from spyweb.settings.alerts import ChannelTemplates, TemplateFormat
from spyweb.settings.load import examine_settings
from spyweb.settings.sections import Settings
from spyweb.specs.discover import scan
from spyweb.specs.parse import alerts_without_file

BACKUP = JobId("backup")
CHANNELS = """
[channels.phone]
webhook = "https://example.org/${TOPIC}"
headers = { x-team = "web" }
level = "warning"
[channels.ops]
webhook = "https://example.org/ops"
"""
ENVIRON = {"TOPIC": "abc"}


def examined(root: Path, text: str) -> tuple[Settings, list[str]]:
    (root / "config.toml").write_text(text)
    settings, problems = examine_settings(root, environ=ENVIRON, flags={})
    return settings, [str(problem) for problem in problems]


def policy_of(root: Path, config: str, block: str = "") -> AlertPolicy:
    (root / "jobs").mkdir(exist_ok=True)
    (root / "jobs/backup.lua").write_text(f"-- /// job\n{block}-- ///\n")
    settings, problems = examined(root, config)
    found = scan(root, settings)
    assert not problems
    assert not found.problems
    return found.jobs[BACKUP].spec.alerts


def test_a_channel_has_an_address_in_which_variables_stand(tmp_path: Path) -> None:
    channels = examined(tmp_path, CHANNELS)[0].alerts.channels
    phone = channels["phone"]
    assert (phone.webhook, phone.headers, phone.level) == (
        "https://example.org/${TOPIC}",
        (("x-team", "web"),),
        Level.WARNING,
    )
    assert channels["ops"].level is Level.INFO
    assert "TOPIC" not in repr(channels)


def test_a_channel_is_a_service_a_webhook_or_the_desktop_and_what_is_secret_may_be_in_files(tmp_path: Path) -> None:
    text = """
[channels.home]
url = "ntfy://${TOPIC}"
[channels.phone]
url_file = "${TOPIC}/phone"
templates = { body = "{{ kind }}", format = "html" }
[channels.ops]
webhook = "https://example.org/"
secret_file = "secrets/ops"
[channels.me]
desktop = true
"""
    settings, problems = examined(tmp_path, text)
    assert not problems
    found = settings.alerts.channels
    assert (found["home"].url, found["home"].webhook) == ("ntfy://${TOPIC}", "")
    assert (found["phone"].url_file, found["ops"].secret_file) == ("${TOPIC}/phone", "secrets/ops")
    assert found["phone"].templates == ChannelTemplates(body="{{ kind }}", format=TemplateFormat.HTML)
    assert found["me"].desktop


WEBHOOK = 'webhook = "https://x"\n'
SERVICE = 'url = "ntfy://x"\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ":1: channels.phone.url: a channel has exactly one address: url, url_file, webhook or desktop"),
        (
            'webhook = "ftp://x/secret"',
            "expected an address: https:// or http://, a host, and a port up to 65535 if any",
        ),
        (f"{WEBHOOK}{SERVICE}", "a channel has exactly one address"),
        (f'{SERVICE}url_file = "x"', "url_file: a channel has exactly one address"),
        ("desktop = false", "expected true, or nothing, not false"),
        (f'{SERVICE}secret_file = "x"', "secret_file: only a webhook has this key"),
        (f'{WEBHOOK}secret = "env:A"\nsecret_file = "x"', "a webhook has either secret or secret_file"),
        ('desktop = true\ntemplates = { body = "b" }', "templates: only a url has templates"),
        ('webhook = ""', "webhook: can't be blank"),
        ('webhook = "ftp://${X}"', "expected an address: https:// or http://, a host, and a port up to 65535 if any"),
        ('url = "hunter${X}"', "expected an address of a service, such as ntfy://"),
        ('url = "hunter"', "expected an address of a service, such as ntfy://"),
        (f'{SERVICE}headers = {{ a = "b" }}', "headers: only a webhook has this key"),
        (f'{WEBHOOK}templates = {{ body = "b" }}', "templates: only a url has templates"),
        (f'{SERVICE}templates = {{ format = "rtf" }}', '"text", "markdown" or "html"'),
        (f'{WEBHOOK}secret = "hunter2"', "not the"),
        (f'{WEBHOOK}levle = "info"', 'unknown key; did you mean "level"?'),
        (f'{SERVICE}quiet = "00:00-00:00"', ":3: channels.phone.quiet: begins and ends at the same time"),
    ],
)
def test_what_is_wrong_with_a_channel_is_said(tmp_path: Path, text: str, expected: str) -> None:
    _, (problem,) = examined(tmp_path, f"[channels.phone]\n{text}\n")
    assert expected in problem
    assert "x/secret" not in problem
    assert "hunter" not in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[channels."My Phone"]\nwebhook = "https://x"\n', "expected a name of a-z, 0-9, _ and -"),
        ('[channels]\nphone = "https://x"\n', "expected the settings of a channel, [channels.NAME]"),
        (
            '[channels.lua]\nwebhook = "https://x"\n',
            "config.toml:1: channels.lua: a channel can't be named lua: the name stands for on_down and on_up",
        ),
    ],
)
def test_what_is_no_channel_is_none(tmp_path: Path, text: str, expected: str) -> None:
    settings, (problem,) = examined(tmp_path, text)
    assert expected in problem
    assert "lua" not in settings.alerts.channels


def later(after: str = "1h", to: str = '["ops"]') -> str:
    return f'[[alerts.escalate]]\nafter = "{after}"\nto = {to}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('to = ["phon"]', '9: alerts.to: no channel "phon"; did you mean "phone"?'),
        ('quiet = "22-7"', 'expected two times of day, "22:00-07:00", or "" for never, not \'22-7\''),
        ('quiet = "24:00-07:00"', "expected two times of day"),
        ('quiet = "07:00-07:00"', "9: alerts.quiet: begins and ends at the same time"),
        ('flapping = "often"', 'expected "5 in 30m", or "never"'),
        ('flapping = "1 in 30m"', "9: alerts.flapping: must be at least 2, not 1"),
        ('escalate = [{ after = "30m" }]', "9: alerts.escalate[1].to: is required"),
        (later(to='["opps"]'), '11: alerts.escalate[1].to: no channel "opps"; did you mean "ops"?'),
        (later() + later("5s"), "13: alerts.escalate[2].after: must be at least 1m, not 5s"),
        (later(to="[]"), "11: alerts.escalate[1].to: an escalation needs a channel in `to`"),
        (later(to='"ops"'), "11: alerts.escalate[1].to: expected a list of texts, not 'ops'"),
        (later() * 6, "24: alerts.escalate[6]: there are at most 5 of them"),
        (f'to = ["ops"]\n{later()}', '12: alerts.escalate[1].to: "ops" is in `to`, so it is notified at once'),
        ("escalate = 5", "9: alerts.escalate: expected tables such as { after"),
        ('level = "urgent"', 'expected "info", "warning" or "critical"'),
        ("after_failures = 0", "9: alerts.after_failures: must be at least 1, not 0"),
        ('remind_every = "1m"', "9: alerts.remind_every: must be at least 5m, not 1m"),
        ('late_after = "30s"', "9: alerts.late_after: must be at least 1m, not 30s"),
        ('no_success_for = "soon"', "9: alerts.no_success_for: "),
        ('pause_after = "soon"', "9: alerts.pause_after: expected a whole number, not 'soon'"),
        ("pause_after = 0", "9: alerts.pause_after: must be at least 1, not 0"),
        (
            "pause_after = 2",
            "9: alerts.pause_after: would be paused before it is an incident: at least after_failures, 3",
        ),
        ("after_failure = 2", '9: alerts.after_failure: unknown key; did you mean "after_failures"?'),
    ],
)
def test_what_is_wrong_with_alerts_is_said(tmp_path: Path, text: str, expected: str) -> None:
    _, (problem,) = examined(tmp_path, f"{CHANNELS}[alerts]\n{text}\n")
    assert expected in problem


def test_nobody_is_told_where_nothing_is_said(tmp_path: Path) -> None:
    assert policy_of(tmp_path, "") == NOBODY


def test_a_job_overrides_alerts_key_by_key_and_config_toml_overrides_the_job(tmp_path: Path) -> None:
    config = (
        f'{CHANNELS}[alerts]\nto = ["phone", "ops"]\nafter_failures = 5\nrecovered = false\nremind_every = "never"\n'
    )
    assert policy_of(tmp_path, config) == AlertPolicy(
        to=("phone", "ops"), after_failures=5, recovered=False, remind_ms=None
    )
    block = '-- alerts = { to = ["ops"], level = "critical", after_failures = 2 }\n'
    own = AlertPolicy(to=("ops",), level=Level.CRITICAL, after_failures=2, recovered=False, remind_ms=None)
    assert policy_of(tmp_path, config, block) == own
    override = f"{config}[jobs.backup.alerts]\nto = []\nafter_successes = 2\n"
    found = policy_of(tmp_path, override, block)
    assert (found.to, found.after_failures, found.after_successes) == ((), 2, 2)


def test_a_job_is_paused_after_so_many_failures_or_never(tmp_path: Path) -> None:
    config = "[alerts]\npause_after = 20\n"
    assert policy_of(tmp_path, config).pause_after == 20
    assert policy_of(tmp_path, config, "-- alerts = { pause_after = 3 }\n").pause_after == 3
    assert policy_of(tmp_path, config, '-- alerts = { pause_after = "never" }\n').pause_after is None


def test_a_job_that_would_be_paused_before_its_incident_is_refused_with_the_key_that_says_so(tmp_path: Path) -> None:
    _, problems = scan_jobs(
        tmp_path, "[alerts]\npause_after = 5\n", a="alerts = { after_failures = 6 }", b="alerts = { pause_after = 2 }"
    )
    reason = "would be paused before it is an incident: at least after_failures"
    assert problems == [
        f"jobs/a.lua:2: alerts.after_failures: {reason}, 6",
        f"jobs/b.lua:2: alerts.pause_after: {reason}, 3",
    ]


def test_quiet_hours_escalations_and_flapping_are_read(tmp_path: Path) -> None:
    config = f"""[daemon]
timezone = "Europe/Berlin"
{CHANNELS}quiet = ""
[alerts]
to = ["phone"]
quiet = "22:00-07:30"
flapping = "5 in 30m"
[[alerts.escalate]]
after = "30m"
to = ["ops"]
"""
    found = policy_of(tmp_path, config)
    assert found.quiet == QuietHours(time(22), time(7, 30), "Europe/Berlin")
    assert found.escalations == (Escalation(1_800_000, ("ops",)),)
    assert found.flapping == Flapping(5, 1_800_000)
    channels = examine_settings(tmp_path, environ=ENVIRON, flags={})[0].alerts.channels
    assert [(each.quiet, each.has_own_quiet) for each in channels.values()] == [(None, False), (None, True)]
    assert policy_of(tmp_path, config, '-- alerts = { quiet = "" }\n').quiet is None


def scan_jobs(root: Path, config: str = "", **blocks: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return what each job's alerts depend on, and what is wrong."""
    if config:
        (root / "config.toml").write_text(config)
    (root / "jobs").mkdir()
    for name, block in blocks.items():
        (root / f"jobs/{name}.lua").write_text(f"-- /// job\n-- {block}\n-- ///\n")
    found = scan(root, examine_settings(root, environ={}, flags={})[0])
    depends = {str(job): file.spec.alerts.depends_on for job, file in found.jobs.items()}
    return depends, [str(each) for each in found.problems]


def test_a_job_depends_on_those_it_names_and_on_those_that_succeed_before_it(tmp_path: Path) -> None:
    depends, problems = scan_jobs(
        tmp_path,
        '[alerts]\ndepends_on = ["net"]\n',
        net="tags = []",
        a='after = "net"',
        b='after = { job = "a", outcome = "failed" }',
        c='alerts = { depends_on = ["a"] }',
        d='after = "a"',
    )
    assert problems == []
    assert depends == {"net": (), "a": ("job:net",), "b": ("job:net",), "c": ("job:a",), "d": ("job:net", "job:a")}


def test_jobs_that_depend_on_each_other_are_refused(tmp_path: Path) -> None:
    depends, problems = scan_jobs(
        tmp_path,
        '[jobs.five.alerts]\ndepends_on = ["Four"]\n',
        one='alerts = { depends_on = ["two"] }',
        two='after = "one"',
        three='alerts = { depends_on = ["one"] }',
        four='alerts = { depends_on = ["five"] }',
        five="tags = []",
    )
    assert depends == {"three": ("job:one",)}
    (first, second) = ("one depends on two depends on one", "five depends on four depends on five")
    assert sorted(problems) == [
        f"config.toml:2: jobs.five.alerts.depends_on: nobody would be notified of these: {second}",
        f"jobs/four.lua:2: alerts.depends_on: nobody would be notified of these: {second}",
        f"jobs/one.lua:2: alerts.depends_on: nobody would be notified of these: {first}",
        f"jobs/two.lua:2: after: nobody would be notified of these: {first}",
    ]


def test_what_all_jobs_depend_on_does_not_depend_on_each_other(tmp_path: Path) -> None:
    depends, problems = scan_jobs(
        tmp_path,
        '[alerts]\ndepends_on = ["Net", "dns"]\n',
        net="tags = []",
        dns='alerts = { depends_on = ["net"] }',
        web="tags = []",
    )
    assert problems == []
    assert depends == {"net": (), "dns": ("job:net",), "web": ("job:net", "job:dns")}


def test_a_job_that_others_depend_on_and_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    config = '[alerts]\ndepends_on = ["nett"]\n[jobs.two.alerts]\ndepends_on = ["x y"]\n'
    one = 'alerts = { depends_on = ["neet"] }'
    depends, problems = scan_jobs(tmp_path, config, net="tags = []", one=one, two="tags = []")
    assert (len(depends), problems) == (3, [])
    found = scan(tmp_path, examine_settings(tmp_path, environ={}, flags={})[0])
    assert sorted(str(each) for each in found.warnings) == [
        'config.toml:2: alerts.depends_on: no job "nett"; did you mean "net"?',
        'config.toml:4: jobs.two.alerts.depends_on: no job "x_y"',
        'jobs/one.lua:2: alerts.depends_on: no job "neet"; did you mean "net"?',
    ]


def test_one_job_may_tell_somebody_at_once_who_is_told_of_others_later(tmp_path: Path) -> None:
    config = f'{CHANNELS}[alerts]\nto = ["phone"]\n[[alerts.escalate]]\nafter = "1h"\nto = ["ops"]\n'
    found = policy_of(tmp_path, config, '-- alerts = { to = ["phone", "ops"] }\n')
    assert found.notifies("ops") == 0


def test_what_a_job_s_own_alerts_have_wrong_is_said_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'{CHANNELS}[alerts]\nto = ["ops"]\n[jobs.b.alerts]\nremind_every = "1m"\n'
        '[[jobs.b.alerts.escalate]]\nafter = "1h"\nto = ["ops"]\n'
    )
    _, problems = scan_jobs(tmp_path, a='alerts = { quiet = "07:00-07:00" }', b="tags = []")
    assert problems == [
        "config.toml:11: jobs.b.alerts.remind_every: must be at least 5m, not 1m",
        'config.toml:14: jobs.b.alerts.escalate[1].to: "ops" is in `to`, so it is notified at once',
        "jobs/a.lua:2: alerts.quiet: begins and ends at the same time: to silence a channel, leave it out of `to`",
    ]


@pytest.mark.parametrize(
    ("config", "block", "expected"),
    [
        ("[alerts]\npause_after = 2\n", "alerts = { to = [] }", []),  # a problem of config.toml
        ('[channels.ops]\nwebhook = "x"\n[alerts]\nto = ["ops"]\n', 'alerts = { to = ["ops"] }', []),  # of the channel
        (CHANNELS, 'alerts = { to = ["fone"] }', ['jobs/a.lua:2: alerts.to: no channel "fone"; did you mean "phone"?']),
        (
            "[defaults]\nalerts = { after_failures = 2 }\n",
            "",
            ["config.toml:2: defaults.alerts: notifications of all jobs are set in [alerts]"],
        ),
    ],
)
def test_what_is_wrong_is_said_where_it_stands_and_not_again_of_each_job(
    tmp_path: Path, config: str, block: str, expected: list[str]
) -> None:
    assert scan_jobs(tmp_path, config, a=block, b="")[1] == expected


def test_how_long_a_job_may_be_late_or_silent_is_inherited_key_by_key(tmp_path: Path) -> None:
    usual = '[alerts]\nlate_after = "5m"\nno_success_for = "1d"\n'
    assert policy_of(tmp_path, "").late_after_ms is None

    policy = policy_of(tmp_path, usual, "-- alerts = { late_after = '1h' }\n")
    assert (policy.late_after_ms, policy.no_success_ms) == (3_600_000, 86_400_000)

    policy = policy_of(
        tmp_path, f'{usual}[jobs.backup.alerts]\nno_success_for = "never"\n', "-- alerts = { late_after = '1h' }\n"
    )
    assert (policy.late_after_ms, policy.no_success_ms) == (3_600_000, None)


def test_of_a_job_whose_file_can_not_be_read_config_toml_alone_says_who_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'{CHANNELS}[alerts]\nto = ["ops"]\nafter_failures = 2\n'
        '[jobs."Back Up".alerts]\nto = ["phone"]\nlevel = "critical"\n'
    )
    settings = examine_settings(tmp_path, environ=ENVIRON, flags={})[0]
    policy = alerts_without_file(JobId("back_up"), settings)
    assert (policy.to, policy.level, policy.after_failures) == (("phone",), Level.CRITICAL, 2)
    assert alerts_without_file(JobId("other"), settings) == settings.alerts.policy
