from __future__ import annotations

from spyweb.ops import catalog


def test_every_op_of_this_version_is_there() -> None:
    assert catalog.names() == [
        "_artifacts",
        "_at",
        "_consume",
        "_crypto",
        "_require",
        "_task",
        "_tasks",
        "_tasks_skipped",
        "cmd",
        "db_exec",
        "db_query",
        "exec.run",
        "fs_append",
        "fs_overwrite",
        "fs_read",
        "fs_read_binary",
        "global_store_delete",
        "global_store_get",
        "global_store_incr",
        "global_store_set",
        "http_get",
        "http_multipart",
        "http_post",
        "http_request",
        "notify",
        "sleep",
        "state.append",
        "state.clear",
        "state.compare_swap",
        "state.decrement",
        "state.delete",
        "state.exists",
        "state.get",
        "state.get_ttl",
        "state.get_version",
        "state.history",
        "state.increment",
        "state.is_locked",
        "state.keys",
        "state.list",
        "state.list_groups",
        "state.list_length",
        "state.list_pop",
        "state.list_push",
        "state.lock",
        "state.rollback",
        "state.set",
        "state.set_ttl",
        "state.set_with_ttl",
        "state.stats",
        "state.try_lock",
        "state.unlock",
        "state.update",
        "store_delete",
        "store_get",
        "store_set",
        "tls_probe",
    ]


def test_every_op_says_what_it_is_for() -> None:
    for name, operation in catalog.operations().items():
        assert operation.name == name
        assert operation.doc.partition("\n")[0].endswith(".")
