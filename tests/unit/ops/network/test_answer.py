from __future__ import annotations

from multidict import CIMultiDict, CIMultiDictProxy

from spyweb.ops.network.answer import with_quoted_location


def test_bytes_of_a_location_that_are_no_utf8_are_percent_encoded() -> None:
    headers = CIMultiDictProxy(CIMultiDict([("A", "1"), ("location", "/é?q=\udce9\udcff%20"), ("A", "2")]))
    quoted = with_quoted_location(headers)
    assert quoted["Location"] == "/é?q=%E9%FF%20"
    assert quoted.getall("A") == ["1", "2"]


def test_any_other_headers_stay_as_they_are() -> None:
    for given in ({}, {"Location": "/é"}, {"Other": "\udce9"}):
        headers = CIMultiDictProxy(CIMultiDict(given))
        assert with_quoted_location(headers) is headers
