from __future__ import annotations

import io
import json
import logging
import os
import warnings
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from spyweb.errors import StoreCorrupt, StoreError
from spyweb.logs.output import as_json, as_text, printable, set_up, tell_refusal, wants_colour
from tests.fakes.clock import FakeClock


@pytest.fixture
def stream() -> io.StringIO:
    """A stream on which all is logged."""
    stream = io.StringIO()
    set_up(stream=stream)
    return stream


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_pipe_gets_one_json_object_a_line_with_the_time_first() -> None:
    stream = io.StringIO()
    set_up(stream=stream, clock=FakeClock())
    structlog.get_logger().info("run ended", job="prices", text=b"\xff")
    assert stream.getvalue().startswith('{"time": "2026-01-01T00:00:00.000Z", "level": "info", "event": "run ended"')
    assert lines(stream)[0]["job"] == "prices"


def test_a_terminal_gets_a_readable_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    set_up(stream=stream, clock=FakeClock())
    structlog.get_logger().warning("run failed", job="prices", reason="no such host", empty="")
    assert stream.getvalue()[12:] == ' warning [prices] run failed reason="no such host" empty=""\n'


def test_colour_is_for_a_terminal_that_did_not_decline_it() -> None:
    assert wants_colour(Terminal(), {})
    assert not wants_colour(Terminal(), {"NO_COLOR": "1"})
    assert not wants_colour(Terminal(), {"TERM": "dumb"})
    assert not wants_colour(io.StringIO(), {})


@pytest.mark.parametrize(
    ("level", "quiet", "heard"),
    [
        ("debug", 0, ["debug", "info", "warning", "error"]),
        ("info", 0, ["info", "warning", "error"]),
        ("info", 1, ["warning", "error"]),
        ("info", 2, ["error"]),
        ("info", 9, ["error"]),
        ("error", 1, ["error"]),
    ],
)
def test_level_and_quietness_choose_the_stricter(level: str, quiet: int, heard: list[str]) -> None:
    stream = io.StringIO()
    set_up(level=level, quiet=quiet, stream=stream)
    for name in ("debug", "info", "warning", "error"):
        structlog.get_logger().log(getattr(logging, name.upper()), "said")
    assert [line["level"] for line in lines(stream)] == heard


def test_an_exception_comes_with_its_traceback(stream: io.StringIO) -> None:
    try:
        raise RuntimeError("boom")
    except RuntimeError as error:
        structlog.get_logger().error("op.bug", exc_info=error)
    assert "RuntimeError: boom" in str(lines(stream)[0]["exception"])


def test_what_libraries_log_takes_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger("apscheduler").warning("late by %s", "2s", extra={"job": "prices"})
    logging.getLogger("apscheduler").info("chatter")
    logging.getLogger("spyweb.anything").info("ours")
    logging.getLogger("odd").log(35, "a level of its own")
    said = [(line["logger"], line["level"], line["event"], line.get("job")) for line in lines(stream)]
    assert said == [
        ("apscheduler", "warning", "late by 2s", "prices"),
        ("spyweb.anything", "info", "ours", None),
        ("odd", "warning", "a level of its own", None),
    ]


def test_the_debug_lines_of_libraries_are_never_heard_for_they_hold_what_scripts_store() -> None:
    stream = io.StringIO()
    set_up(level="debug", stream=stream)
    logging.getLogger("aiosqlite").debug("executing commit of [b'a secret']")
    structlog.get_logger().debug("ours")
    assert [line["event"] for line in lines(stream)] == ["ours"]


def test_a_library_that_misformats_its_message_loses_nothing() -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    logging.getLogger("library").error("%d items", "three")
    assert lines(stream)[0]["event"] == "%d items ('three',)"


def test_python_warnings_are_logged(stream: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", UserWarning, stacklevel=1)
    assert "UserWarning: old" in str(lines(stream)[0]["event"])


def test_secrets_are_shown_neither_by_name_nor_by_value_nor_in_a_url() -> None:
    stream = io.StringIO()
    set_up(stream=stream, secrets=["s3cret-value", 'quo"ted-value'])
    structlog.get_logger().info(
        "sent s3cret-value",
        api_key="abc",
        headers={"Authorization": "Bearer abc", "accept": "text"},
        url="https://me:pass@example.org/",
        other='quo"ted-value',
    )
    text = stream.getvalue()
    assert not [secret for secret in ("s3cret", "ted-value", "abc", "pass") if secret in text]
    assert lines(stream)[0]["headers"] == {"Authorization": "[hidden]", "accept": "text"}
    assert lines(stream)[0]["url"] == "https://me:[hidden]@example.org/"


def test_a_stream_that_fails_costs_lines_and_never_an_exception() -> None:
    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError

    set_up(stream=Gone())
    structlog.get_logger().info("into the void")
    closed = io.StringIO()
    set_up(stream=closed)
    closed.close()
    structlog.get_logger().info("into the void")


def test_a_stream_without_unicode_gets_every_line_all_the_same() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    set_up(stream=stream)
    structlog.get_logger().info("Ä \ud800")
    assert b'"event": "\\xc4 \\ud800"' in buffer.getvalue()
    stream.detach()


@pytest.mark.parametrize("value", ["x" * 500_000, ["y" * 500_000], {"z": 500_000 * "z"}, "\1" * 30_000])
def test_a_line_is_cut_where_it_is_too_long(stream: io.StringIO, value: object) -> None:
    structlog.get_logger().info("odd", job="prices", number=7, value=value)
    assert len(stream.getvalue()) < 10_000
    line = lines(stream)[0]
    assert (line["event"], line["job"], line["number"]) == ("odd", "prices", 7)
    assert str(line["value"]).endswith(" characters)")


def test_the_form_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    pipe, terminal = io.StringIO(), Terminal()
    for stream, form in ((pipe, "text"), (terminal, "json")):
        set_up(stream=stream, form=form, clock=FakeClock())
        structlog.get_logger().info("said")
    assert pipe.getvalue()[:10] == "2026-01-01"
    assert pipe.getvalue()[23:] == " info    said\n"
    assert json.loads(terminal.getvalue())["event"] == "said"


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_journal_is_told_how_grave_each_line_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        found = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{found.st_dev}:{found.st_ino}")
        set_up(level="debug", stream=stream, form=form)
        for level, text in (("debug", "said"), ("info", "said"), ("warning", "said\nmore"), ("error", "said")):
            getattr(structlog.get_logger(), level)(text)
        stream.seek(0)
        marks = [line[:3] for line in stream]
    assert marks == (["<7>", "<6>", "<4>", "<3>"] if form == "json" else ["<7>", "<6>", "<4>", "<4>", "<3>"])


@pytest.mark.parametrize(
    ("error", "level", "reason"),
    [
        (StoreError("no room left"), "error", "no room left"),
        (StoreCorrupt(Path("s.db"), "torn"), "debug", str(StoreCorrupt(Path("s.db"), "torn"))),
        (MemoryError(), "error", "MemoryError"),
    ],
)
def test_a_refusal_is_told_with_its_reason_and_damage_by_the_store_alone(
    error: Exception, level: str, reason: str
) -> None:
    with capture_logs() as told:
        tell_refusal("put off", error, by_s=5)
    assert told == [{"event": "put off", "reason": reason, "by_s": 5, "log_level": level}]


plain = as_text(colour=False)


def test_every_control_character_is_spelt_out_and_nothing_else_changes() -> None:
    for code in {*range(0x110), 0x2028, 0x1F600} - {ord("\n")}:
        is_control = code < 0x20 or 0x7F <= code < 0xA0
        obeyed = is_control and code != ord("\t")
        assert printable(f"a{chr(code)}") == (f"a\\x{code:02x}" if obeyed else f"a{chr(code)}")
    assert printable("a\nb\n") == "a\n    b", "further lines are indented"


def test_what_json_can_not_say_is_said_as_text() -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    event = json.loads(as_json({"at_ms": 0, "level": "info", "event": "odd", "loop": loop, "raw": b"\xffa"}))
    assert event["loop"] == "{'self': {...}}"
    assert event["raw"] == "\N{REPLACEMENT CHARACTER}a"


def test_a_traceback_follows_indented() -> None:
    line = plain({"at_ms": 0, "level": "error", "event": "bug", "exception": "Traceback\nRuntimeError: boom"})
    assert line[12:] == " error   bug\n    Traceback\n    RuntimeError: boom"


def test_colour_wraps_the_level() -> None:
    assert "\x1b[31merror  \x1b[0m" in as_text(colour=True)({"at_ms": 0, "level": "error", "event": "bug"})
