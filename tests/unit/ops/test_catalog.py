from __future__ import annotations

from spyweb.ops import catalog


def test_every_op_of_this_version_is_there() -> None:
    assert catalog.names() == [
        "_require",
        "global_store_delete",
        "global_store_get",
        "global_store_incr",
        "global_store_set",
        "http_get",
        "http_multipart",
        "http_post",
        "http_request",
        "sleep",
        "store_delete",
        "store_get",
        "store_set",
    ]


def test_every_op_says_what_it_is_for() -> None:
    for name, operation in catalog.operations().items():
        assert operation.name == name
        assert operation.doc.partition("\n")[0].endswith(".")
