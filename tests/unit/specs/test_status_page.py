"""Which jobs the status page shows."""

from __future__ import annotations

from pathlib import Path

from spyweb.settings.load import load_settings
from spyweb.specs.discover import scan
from spyweb.subjects.status.service import groups_of

JOBS = ("site", "api_a", "api_b", "tagged", "off", "hidden")


def project(root: Path, *lines: str) -> Path:
    (root / "jobs").mkdir()
    for job in JOBS:
        more = {"tagged": ['tags = ["public"]'], "off": ['tags = ["public"]', "enabled = false"]}.get(job, [])
        head = "".join(f"-- {line}\n" for line in ("/// job", *more, "///"))
        (root / f"jobs/{job}.lua").write_text(f"{head}log('x')")
    (root / "config.toml").write_text("\n".join(["[status_page]", *lines]))
    return root


def shown(root: Path) -> list[tuple[str, list[str]]]:
    settings = load_settings(root, environ={}, flags={})
    assert settings.status_page
    specs = [file.spec for file in scan(root, settings).jobs.values()]
    return [(name, [spec.id for spec in jobs]) for name, jobs in groups_of(settings.status_page, specs)]


def doubts(root: Path) -> list[str]:
    return sorted(str(each) for each in scan(root, load_settings(root, environ={}, flags={})).warnings)


def test_groups_name_jobs_and_patterns_and_tags_the_rest(tmp_path: Path) -> None:
    groups = '{ name = "Web", jobs = ["site", "api_*", "site"] }, { name = "Empty", jobs = ["off"] }'
    project(tmp_path, f"groups = [{groups}]", 'tags = ["public"]')
    assert shown(tmp_path) == [("Web", ["site", "api_a", "api_b"]), ("Others", ["tagged"])]
    assert doubts(tmp_path) == []


def test_each_name_that_nothing_has_gets_one_line(tmp_path: Path) -> None:
    groups = 'groups = [{ name = "Web", jobs = ["sit", "x-*", "!"] }]'
    project(tmp_path, groups, 'tags = ["pubic"]', 'logo = "logo.svg"')
    assert doubts(tmp_path) == [
        'config.toml:2: status_page.groups[1].jobs: no job is called "!"',
        'config.toml:2: status_page.groups[1].jobs: no job is called "sit"; did you mean "site"?',
        'config.toml:2: status_page.groups[1].jobs: no job matches "x_*"',
        'config.toml:3: status_page.tags: no job has the tag "pubic"',
        "config.toml:4: status_page.logo: there is no file logo.svg",
    ]
