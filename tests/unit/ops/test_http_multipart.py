from __future__ import annotations

import pytest

from spyweb.errors import FetchError
from spyweb.ops.http import Part, encode_parts


def test_a_form_reads_as_a_browser_writes_it() -> None:
    kind, body = encode_parts(
        [
            Part(name=b"a", content=b"1"),
            Part(name=b"f", content=b"\x00", filename=b"x.bin"),
            Part(name=b"j", content=b"{}", type=b"application/json"),
        ]
    )
    boundary = kind.removeprefix(b"multipart/form-data; boundary=")
    assert body.replace(boundary, b"B").split(b"\r\n") == [
        b"--B",
        b'Content-Disposition: form-data; name="a"',
        b"",
        b"1",
        b"--B",
        b'Content-Disposition: form-data; name="f"; filename="x.bin"',
        b"Content-Type: application/octet-stream",
        b"",
        b"\x00",
        b"--B",
        b'Content-Disposition: form-data; name="j"',
        b"Content-Type: application/json",
        b"",
        b"{}",
        b"--B--",
        b"",
    ]


def test_an_empty_form_is_still_a_form() -> None:
    kind, body = encode_parts([])
    assert body == b"--" + kind.partition(b"=")[2] + b"--\r\n"


def test_names_cannot_break_out_of_their_quotes() -> None:
    _, body = encode_parts([Part(name=b'a"\r\nX: y', content=b"", filename=b'"\n')])
    assert b'name="a%22%0D%0AX: y"; filename="%22%0A"' in body


def test_two_forms_have_two_boundaries() -> None:
    assert encode_parts([])[0] != encode_parts([])[0]


@pytest.mark.parametrize("kind", [b"a/b\r\nX: y", b"a\nb"])
def test_a_type_cannot_begin_another_line(kind: bytes) -> None:
    with pytest.raises(FetchError):
        encode_parts([Part(name=b"a", content=b"", type=kind)])


@pytest.mark.parametrize("field", ["name", "filename", "type"])
def test_the_head_of_a_part_is_as_long_as_headers_are(field: str) -> None:
    with pytest.raises(
        FetchError, match=r"^the head of a part has 6553[0-9] bytes, at most 65536 are allowed$"
    ) as error:
        encode_parts([Part(**{"name": b"", "content": b"", field: b'"' * 65_537})])
    assert error.value.kind == "http"
