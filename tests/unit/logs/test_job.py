from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from spyweb.errors import NoAccess
from spyweb.files import Forbidden
from spyweb.logs import job as module
from spyweb.logs.job import FLUSH_DELAY_S, PENDING_PER_JOB, SOON_PER_JOB, JobLogs, append
from spyweb.logs.reading import KEPT
from tests.fakes.clock import START_MS, FakeClock

STAMP = "2026-01-01T00:00:00.000Z"


def read(root: Path, folder: str = "jobs/prices") -> list[str]:
    return (root / folder / "hooks.log").read_text("utf-8", "surrogateescape").splitlines()


async def test_a_line_is_stamped_with_time_and_level(tmp_path: Path) -> None:
    async with JobLogs(tmp_path, FakeClock(START_MS + 123)) as logs:
        logs.write("jobs/prices", "warn", b"too dear")
        await logs.flush()
        assert read(tmp_path) == ["2026-01-01T00:00:00.123Z WARN too dear"]


async def test_without_a_flush_lines_are_written_together_a_little_later(tmp_path: Path) -> None:
    clock = FakeClock()
    async with JobLogs(tmp_path, clock) as logs:
        logs.write("jobs/prices", "info", "one")
        logs.write("jobs/prices", "info", "two")
        assert (clock.pending, clock.next_in) == (1, FLUSH_DELAY_S)
        clock.advance(FLUSH_DELAY_S)
        await logs.flush()
        assert [line.split()[-1] for line in read(tmp_path)] == ["one", "two"]
        assert clock.pending == 0


class SlowDisk:
    """Appends once it is told to go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def append(self, root: Path, folder: str, name: str, data: bytes) -> None:
        self.begun.set()
        assert self.go_on.wait(5)
        append(root, folder, name, data)

    async def has_begun(self) -> None:
        await asyncio.to_thread(self.begun.wait, 5)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr(module, "append", disk.append)
    return disk


async def test_a_line_that_comes_during_the_last_but_one_batch_is_not_lost(tmp_path: Path, disk: SlowDisk) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        logs.write("jobs/prices", "info", "first")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(logs.flush())
            await disk.has_begun()
            logs.write("jobs/prices", "info", "second")
            disk.go_on.set()
    assert [line.split()[-1] for line in read(tmp_path)] == ["first", "second"]


async def test_an_error_in_the_block_does_not_lose_lines(tmp_path: Path) -> None:
    async def fail() -> None:
        async with JobLogs(tmp_path, FakeClock()) as logs:
            logs.write("jobs/prices", "info", "before")
            raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        await fail()
    assert read(tmp_path) == [f"{STAMP} INFO before"]


async def test_after_closing_writing_and_flushing_do_nothing(tmp_path: Path) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        pass
    logs.write("jobs/prices", "info", "too late")
    await logs.flush()
    assert not (tmp_path / "jobs").exists()


async def test_every_control_byte_is_spelt_out_and_no_other(tmp_path: Path) -> None:
    kept = {*range(0x20, 0x7F), *range(0x80, 0x100), ord("\t")}
    async with JobLogs(tmp_path, FakeClock()) as logs:
        for code in {*range(0x100)} - {ord("\n")}:
            logs.write("jobs/prices", "info", b"a%c" % code)
    expected = [b"a%c" % code if code in kept else b"a\\x%02x" % code for code in range(0x100) if code != ord("\n")]
    written = (tmp_path / "jobs/prices/hooks.log").read_bytes().split(b"\n")[:-1]
    assert [line.rpartition(b" INFO ")[2] for line in written] == expected


async def test_a_second_line_of_a_message_can_not_pass_for_a_line_of_its_own(tmp_path: Path) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        logs.write("jobs/prices", "info", f"one\n{STAMP} ERROR forged\n")
    assert read(tmp_path) == [f"{STAMP} INFO one", f"    {STAMP} ERROR forged"]


async def test_a_folder_that_can_not_be_written_costs_one_warning_until_it_works_again(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    with capture_logs() as said:
        async with JobLogs(tmp_path, FakeClock()) as logs:
            for is_broken in (True, True, False, True):
                if is_broken:
                    folder.write_text("a file where a folder should be")
                logs.write("jobs/prices", "info", "said")
                await logs.flush()
                folder.unlink() if is_broken else folder.rename(tmp_path / "elsewhere")
    assert [line["event"] for line in said] == ["job log can't be written"] * 2
    assert said[0]["file"] == "jobs/prices/hooks.log"


async def test_one_job_that_fails_does_not_take_the_lines_of_another(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/broken").write_text("")
    async with JobLogs(tmp_path, FakeClock()) as logs:
        logs.write("jobs/broken", "info", "lost")
        logs.write("jobs/prices", "info", "kept")
    assert read(tmp_path) == [f"{STAMP} INFO kept"]


async def test_a_burst_does_not_wait_until_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written, loop = asyncio.Event(), asyncio.get_running_loop()
    monkeypatch.setattr(module, "append", lambda *_: loop.call_soon_threadsafe(written.set))
    async with JobLogs(tmp_path, FakeClock()) as logs, asyncio.timeout(5):
        logs.write("jobs/prices", "info", b"x" * SOON_PER_JOB)
        await written.wait()


async def test_what_a_slow_disk_can_not_take_is_dropped_and_counted(tmp_path: Path) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        for _ in range(12):
            logs.write("jobs/prices", "info", b"x" * (PENDING_PER_JOB // 10))
    lines = read(tmp_path)
    assert len(lines) == 9 + 1
    assert lines[-1] == f"{STAMP} WARN 3 lines were dropped here: they came faster than they could be written"


async def test_all_jobs_together_have_a_bound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING", 5_000)
    async with JobLogs(tmp_path, FakeClock()) as logs:
        for number in range(10):
            logs.write(f"jobs/job{number}", "info", b"x" * 1_000)
        await logs.flush()
        logs.write("jobs/job9", "info", b"there is room again")
    kept = [number for number in range(10) if "xxx" in read(tmp_path, f"jobs/job{number}")[0]]
    assert kept == [0, 1, 2, 3]
    assert read(tmp_path, "jobs/job9")[-1].endswith("there is room again")


async def test_a_listener_hears_the_lines_of_its_folder_until_it_is_ended(tmp_path: Path) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        heard: list[tuple[object, ...]] = []
        end = logs.listen("jobs/prices", lambda *line: heard.append(line))
        logs.write("jobs/prices", "warn", b"too dear", 7)
        logs.write("jobs/other", "info", b"not this")
        end()
        logs.write("jobs/prices", "info", b"nor this")
        end()
    assert heard == [(START_MS, "warn", b"too dear", 7)]


async def test_the_last_lines_end_where_the_place_is_noted(tmp_path: Path, disk: SlowDisk) -> None:
    async with JobLogs(tmp_path, FakeClock()) as logs:
        heard: list[object] = []
        logs.listen("jobs/prices", lambda _at, _level, text, _run: heard.append(text))
        logs.write("jobs/prices", "info", "before")
        places: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            asked = tasks.create_task(logs.last_lines("jobs/prices", 10, lambda: places.append(len(heard))))
            await disk.has_begun()
            logs.write("jobs/prices", "info", "after")
            disk.go_on.set()
        assert [line.split()[-1] for line in asked.result()] == ["before"]
        assert heard[places[0] :] == ["after"]


async def test_the_last_lines_of_a_log_that_is_none_or_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "jobs/odd/hooks.log").mkdir(parents=True)
    async with JobLogs(tmp_path, FakeClock()) as logs:
        assert await logs.last_lines("jobs/none", 10, lambda: None) == []
        with pytest.raises(NoAccess):
            await logs.last_lines("jobs/odd", 10, lambda: None)
    assert await logs.last_lines("jobs/none", 10, lambda: None) == []  # it is closed


FOLDER = "jobs/prices"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10)


def contents(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted((root / FOLDER).iterdir())}


@pytest.mark.usefixtures("small")
def test_a_full_file_gives_way_and_five_older_ones_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        append(tmp_path, FOLDER, "hooks.log", f"line {number}\n".encode())
    found = contents(tmp_path)
    assert list(found) == ["hooks.log", *(f"hooks.log.{number}" for number in range(1, KEPT + 1))]
    assert list(found.values()) == [f"line {number}\n" for number in (7, 6, 5, 4, 3, 2)]


@pytest.mark.usefixtures("small")
def test_more_than_a_whole_file_at_once_is_kept_together(tmp_path: Path) -> None:
    append(tmp_path, FOLDER, "hooks.log", b"x" * 50)
    assert contents(tmp_path) == {"hooks.log": "x" * 50}


def test_a_folder_linked_out_of_the_project_is_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    outside.mkdir()
    (root / "jobs").mkdir(parents=True)
    (root / FOLDER).symlink_to(outside)
    with pytest.raises(Forbidden, match="leads out"):
        append(root, FOLDER, "hooks.log", b"a\n")
    assert not list(outside.iterdir())


def test_a_file_linked_elsewhere_is_refused(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "hooks.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links") as caught:
        append(tmp_path, FOLDER, "hooks.log", b"a\n")
    assert caught.value.errno == errno.ELOOP
    assert victim.read_text() == "untouched"


def test_a_folder_linked_inside_the_project_is_followed(tmp_path: Path) -> None:
    (tmp_path / "teams/blue").mkdir(parents=True)
    (tmp_path / "jobs").symlink_to("teams/blue")
    append(tmp_path, FOLDER, "hooks.log", b"a\n")
    assert (tmp_path / "teams/blue/prices/hooks.log").read_text() == "a\n"


def test_a_pipe_or_device_in_place_of_the_file_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    os.mkfifo(tmp_path / FOLDER / "hooks.log")
    with pytest.raises(OSError, match=r"hooks\.log"):
        append(tmp_path, FOLDER, "hooks.log", b"a\n")


def test_a_disk_that_fills_up_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, FOLDER, "hooks.log", b"whole\n")
    really_write, calls = os.write, iter([3])

    def write_three_bytes_then_fail(file: int, data: bytes) -> int:
        if size := next(calls, None):
            return really_write(file, bytes(data)[:size])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", write_three_bytes_then_fail)
    with pytest.raises(OSError, match="No space left"):
        append(tmp_path, FOLDER, "hooks.log", b"half a line\n")
    assert contents(tmp_path) == {"hooks.log": "whole\n"}
