from __future__ import annotations

import pytest

from spyweb.errors import Problem
from spyweb.model import HookSigning, JobHook
from spyweb.settings.reading import SettingsSource
from spyweb.specs.hook import HOOK


def read_hook(value: object) -> tuple[tuple[JobHook, ...] | None, list[str]]:
    problems: list[Problem] = []
    source = SettingsSource({"hook": value}, lambda reason, *keys: Problem("x", None, ".".join(keys), reason))
    return HOOK.read(source, "hook", problems), [str(problem).removeprefix("x: hook") for problem in problems]


def test_a_hook_names_where_its_secret_is_found_and_how_it_signs() -> None:
    given = {"secret": "env:GITHUB_SECRET", "hmac": "github", "headers": ["X-GitHub-Event"]}
    hook = JobHook(secret="env:GITHUB_SECRET", signing=HookSigning.GITHUB, headers=("x-github-event",))
    assert read_hook(given) == ((hook,), [])
    assert read_hook({"secret": "credential:github"}) == ((JobHook(secret="credential:github"),), [])
    assert read_hook({}) == ((JobHook(),), [])


NOT_ITSELF = '.secret: expected where it is found, "env:NAME" or "credential:NAME", not the secret itself'


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ("env:X", [""": expected { secret = "env:NAME", hmac = "github" }, not 'env:X'"""]),
        ({"secret": "hunter2"}, [NOT_ITSELF]),
        ({"secret": "env:"}, [NOT_ITSELF]),
        ({"secret": "env:A\n"}, [NOT_ITSELF]),
        ({"secret": "credential:../x"}, [NOT_ITSELF]),
        (
            {"secret": "env:A", "hmac": "gihub"},
            [""".hmac: expected "github", "stripe" or "spyweb", not 'gihub'; did you mean "github"?"""],
        ),
        ({"hmac": "github"}, [".hmac: signs with a secret: expected secret as well"]),
        (
            {"secret": 5, "secrets": "env:A", "headers": "x"},
            [
                ".secret: expected text, not 5",
                ".headers: expected a list of texts, not 'x'",
                '.secrets: unknown key; did you mean "secret"?',
            ],
        ),
        ({"headers": ["a b"]}, [".headers: 'a b' is no name of a header"]),
        ({"headers": ["a"] * 33}, [".headers: expected at most 32"]),
    ],
)
def test_all_that_makes_no_sense_is_refused_without_the_secret(given: object, reasons: list[str]) -> None:
    assert read_hook(given) == (None, reasons)
