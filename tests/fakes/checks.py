"""Run the script of a check in a real VM: its ops are functions of the test, and its pauses only pass on paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import cast

from spyweb.checks.settings import CheckKind, script_of
from spyweb.errors import OpError
from spyweb.lua import wire
from spyweb.lua.wire import Ended, Form
from spyweb.lua.worker.vm import compile_lua_files
from tests.fakes.inline_worker import InlineWorker

OPS = ("http_request", "tls_probe", "tcp_probe", "dns_query", "ping", "exec.run")
Op = Callable[..., Sequence[object]]

compiled = cache(compile_lua_files)


@dataclass(slots=True)
class CheckRun:
    succeeded: bool
    result: dict[str, object]  # of a success
    reason: str  # of a failure
    slept_ms: list[object] = field(default_factory=list)
    asked: list[tuple[str, list[object]]] = field(default_factory=list)  # each op but sleep, with its arguments


def run_script(source: str, values: Mapping[str, object], ops: Mapping[str, Op]) -> CheckRun:
    worker = InlineWorker(compiled(), ops=("sleep", *OPS))
    worker.say(wire.LoadVm(1, [("jobs/x.lua", source.encode())], 16 << 20))
    assert worker.told(wire.VmLoaded)[-1].reason is None, worker.told(wire.VmLoaded)[-1].reason
    worker.say(wire.BeginRun(1, 1, "run", wire.pack([{"job": "x"}, False, values]), 10_000))
    run = CheckRun(False, {}, "")
    while worker.end is None:
        call = worker.heard[-1]
        assert isinstance(call, wire.OpCall | wire.PackedOpCall), call
        given = call.values if isinstance(call, wire.OpCall) else wire.unpack(call.packed)
        if call.name == "sleep":
            run.slept_ms += given
            answer: Sequence[object] = ()
        else:
            run.asked.append((call.name, [*given]))
            try:
                answer = ops[call.name](*given)
            except OpError as error:
                worker.say(wire.ResumeRun(1, call.number, int(Form.RAISE), [str(error).encode()]))
                continue
        worker.say(wire.ResumeRun(1, call.number, int(Form.PACKED), [wire.pack([*answer])]))
    run.succeeded, run.reason = worker.end.ended == Ended.SUCCESS, worker.end.reason.decode(errors="replace")
    if run.succeeded:
        (found,) = worker.result
        run.result = {key.decode(): value for key, value in cast("dict[bytes, object]", found).items()}
    return run


def run_check(kind: CheckKind, values: Mapping[str, object], **ops: Op) -> CheckRun:
    """Run a check; an op is given by its name, with `_` for a dot."""
    by_name = {name: ops[name.replace(".", "_")] for name in OPS if name.replace(".", "_") in ops}
    return run_script(script_of(kind)[1].decode(), {"timeout": 10, **values}, by_name)
