from __future__ import annotations

import pytest

from spyweb.model import HookSigning, JobHook
from spyweb.specs.hook import read_hook


def test_a_hook_names_where_its_secret_is_found_and_how_it_signs() -> None:
    given = {"secret": "env:GITHUB_SECRET", "hmac": "github", "headers": ["X-GitHub-Event"]}
    assert read_hook(given) == JobHook(
        secret="env:GITHUB_SECRET", signing=HookSigning.GITHUB, headers=("x-github-event",)
    )
    assert read_hook({"secret": "credential:github"}) == JobHook(secret="credential:github")
    assert read_hook({}) == JobHook()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("env:X", "expected"),
        ({"secret": "hunter2"}, "not the secret itself"),
        ({"secret": "env:"}, "not the secret itself"),
        ({"secret": "env:A\n"}, "not the secret itself"),
        ({"secret": "credential:../x"}, "not the secret itself"),
        ({"secret": 5}, "text"),
        ({"secret": "env:A", "hmac": "plain"}, '"github", "stripe" or "spyweb"'),
        ({"hmac": "github"}, "expected secret as well"),
        ({"secrets": "env:A"}, "did you mean"),
        ({"headers": "x"}, "list of texts"),
        ({"headers": ["a b"]}, "no name of a header"),
        ({"headers": ["a"] * 33}, "at most 32"),
    ],
)
def test_what_makes_no_sense_is_refused(given: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        read_hook(given)
