"""The functions that a job's files may define: the hooks of monitors (lua/hooks.py) and the entries of scripts."""

from __future__ import annotations

from spyweb.lua.hooks import HOOKS
from spyweb.reference.entries import function

CALLS = {hook.name: function(hook.name + hook.signature, hook.called, overloads=hook.overloads) for hook in HOOKS}

# Of a script job, besides on_success, on_error and on_finally; the last two of a monitor as well.
ENTRIES = (
    function("run(ctx: Ctx): any result, string? message", "Called for each run of a script job."),
    function(
        "on_state(event: StateEvent, ctx: Ctx): any result, string? message",
        "Called in place of `run` when a change of state starts the job.",
    ),
    function("on_down(incident: Incident, ctx: Ctx)", "Called once for each incident of the job, when it has begun."),
    function("on_up(incident: Incident, ctx: Ctx)", "Called once for each incident of the job, when it is over."),
)
