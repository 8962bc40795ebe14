from __future__ import annotations

import json

from spyweb.logs.render import as_json, as_text, printable, stamp

plain = as_text(colour=False)


def test_a_stamp_is_utc_with_milliseconds() -> None:
    assert stamp(1_767_225_600_007) == "2026-01-01T00:00:00.007Z"


def test_a_terminal_is_never_given_anything_to_obey() -> None:
    assert printable("\x1b[2Jclear\r\x9b") == "\\x1b[2Jclear\\x0d\\x9b"


def test_every_control_character_is_spelt_out_and_nothing_else_changes() -> None:
    for code in {*range(0x110), 0x2028, 0x1F600} - {ord("\n")}:
        is_control = code < 0x20 or 0x7F <= code < 0xA0
        obeyed = is_control and code != ord("\t")
        assert printable(f"a{chr(code)}") == (f"a\\x{code:02x}" if obeyed else f"a{chr(code)}")


def test_further_lines_are_indented() -> None:
    assert printable("a\nb\n") == "a\n    b"


def test_what_json_can_not_say_is_said_as_text() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    event = json.loads(as_json({"at_ms": 0, "level": "info", "event": "odd", "loop": loop, "raw": b"\xffa"}))
    assert event["loop"] == "{'self': {...}}"
    assert event["raw"] == "\N{REPLACEMENT CHARACTER}a"


def test_on_a_terminal_the_job_stands_before_the_text_and_fields_after_it() -> None:
    line = plain({"at_ms": 0, "level": "info", "event": "done", "job": "prices", "took": "3 ms", "empty": ""})
    assert line[12:] == ' info    [prices] done took="3 ms" empty=""'


def test_a_traceback_follows_indented() -> None:
    line = plain({"at_ms": 0, "level": "error", "event": "bug", "exception": "Traceback\nRuntimeError: boom"})
    assert line[12:] == " error   bug\n    Traceback\n    RuntimeError: boom"


def test_colour_wraps_the_level() -> None:
    assert "\x1b[31merror  \x1b[0m" in as_text(colour=True)({"at_ms": 0, "level": "error", "event": "bug"})


def test_what_is_no_terminal_shows_the_date_too() -> None:
    line = as_text(colour=False, dated=True)({"at_ms": 86_400_000, "level": "info", "event": "done"})
    assert line[:3] == "197"
    assert line[10:] == line[10:23] + " info    done"
