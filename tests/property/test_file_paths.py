"""No name leads out of the folders that are permitted, whatever it spells and whatever links lie in the way."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spyweb.files import Forbidden
from spyweb.ops.files.files import Files
from spyweb.ops.files.names import TEXT_KINDS, places_of, steps_of
from tests.fakes.clock import FakeClock

FOLDER = "jobs/prices"
STEPS = st.sampled_from(
    [
        "..", ".", "", "a", "b", "shared", "out", "up", "loop", "x.csv", "~", "..\\", "%2e%2e", "\u2024\u2024", "a\0b",
        "C:", "/", " ",
    ]
)  # fmt: skip
NAMES = st.one_of(
    st.lists(STEPS, max_size=6).map("/".join).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(STEPS, max_size=5).map(lambda steps: ("/".join([*steps, "x.csv"])).encode()),
    st.binary(max_size=40),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
)


@given(NAMES)
def test_what_passes_has_no_step_that_leads_up_or_is_empty(name: bytes) -> None:
    with suppress(Forbidden):
        for step in steps_of(name):
            assert step not in ("", ".", "..")
            assert "/" not in step
            assert "\0" not in step


@given(st.lists(NAMES, min_size=1, max_size=8))
def test_nothing_outside_is_written_or_read(names: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        project = _project_with_links(top)
        before = _outside(top)
        files = Files(project, FakeClock())
        for name in names:
            with suppress(Forbidden, OSError):
                own, shared = places_of(files.top, FOLDER, name, TEXT_KINDS)
                for place in (own, shared):
                    with suppress(FileNotFoundError):
                        assert files.read(place, 1000) != b"secret"
                files.append(own, b"written")
                files.overwrite(own, b"written")
        assert _outside(top) == before


def _project_with_links(top: Path) -> Path:
    """Links to everywhere in the job's folder and in the shared one."""
    project = top / "project"
    (top / "outside/a").mkdir(parents=True)
    for secret in ("outside/x.csv", "outside/a/x.csv", "x.csv"):
        (top / secret).write_bytes(b"secret")
    (project / "jobs").mkdir(parents=True)
    (project / "x.csv").write_bytes(b"secret")
    (project / "jobs/x.csv").write_bytes(b"secret")
    for inside in (project / FOLDER, project / "shared"):
        inside.mkdir()
        (inside / "out").symlink_to(top / "outside")
        (inside / "up").symlink_to("..")
        (inside / "loop").symlink_to("loop")
        (inside / "b").symlink_to(top / "outside/x.csv")
    return project


def _outside(top: Path) -> dict[str, bytes]:
    allowed = (top / "project" / FOLDER, top / "project/shared")
    files = [path for path in top.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): path.read_bytes() for path in files if not any(path.is_relative_to(each) for each in allowed)}
