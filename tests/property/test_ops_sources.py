from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from spyweb.errors import OpError
from spyweb.ops.sources import candidates_of

NASTY = st.lists(
    st.sampled_from([b"..", b".", b"/", b"\\", b"a", b"etc", b"\x00", b"~", b" ", b"%2e", b"\xe2\x80\xa4", b"\xff"]),
    max_size=8,
).map(b"".join)


@given(st.one_of(st.binary(max_size=40), NASTY))
def test_no_name_climbs_out_of_its_folder(name: bytes) -> None:
    try:
        candidates = list(candidates_of("jobs/prices", name))
    except OpError:
        return
    for path in candidates:
        assert not path.is_absolute()
        assert ".." not in path.parts
        assert path.suffix == ".lua"
        assert PurePosixPath("jobs/prices") in path.parents or len(path.parts) >= 1
    assert all(PurePosixPath("jobs/prices") in path.parents for path in candidates[:2])
