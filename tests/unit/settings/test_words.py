"""Each key has a word for editors, and no word is about a key that is gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from spyweb.settings.alerts import channel_keys
from spyweb.settings.load import section_keys
from spyweb.settings.reading import Schema
from spyweb.settings.words import CHANNEL, JOB, MAINTENANCE, SETTINGS
from spyweb.specs.maintenance import maintenance_keys
from spyweb.specs.parse import job_keys


def names(keys: Mapping[str, Schema], prefix: str = "") -> Iterator[str]:
    for key, schema in keys.items():
        yield prefix + key
        instead = schema.get("anyOf", ())
        for each in (schema, *(instead if isinstance(instead, list) else ())):
            if isinstance(inner := each.get("properties"), Mapping):
                yield from names(inner, f"{prefix}{key}.")


def test_every_key_has_a_word_of_one_line_and_no_word_is_about_a_key_that_is_gone() -> None:
    of_sections = {f"{section}.{key}": value for section, keys in section_keys().items() for key, value in keys.items()}
    told = {key: str(value["description"]) for key, value in of_sections.items() if "description" in value}
    assert set(names(job_keys(is_monitor=True))) == JOB.keys() >= set(names(job_keys(is_monitor=False)))
    assert {*told, *SETTINGS} == {*of_sections}
    assert set(channel_keys()) == CHANNEL.keys()
    assert set(maintenance_keys()) == MAINTENANCE.keys()
    for word in (*JOB.values(), *SETTINGS.values(), *told.values(), *CHANNEL.values(), *MAINTENANCE.values()):
        assert "\n" not in word
        assert len(word) <= 120
