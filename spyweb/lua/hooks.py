"""The hooks of a monitor job, and how a worker is told which to call: the procedures `load` and `cycle`.

`load`, without arguments, executes the files of a VM's Code, in order, and that once: in a VM that has executed them it
does nothing, and where another run is at it, it waits for that.

`cycle` has one argument, the table that becomes `ctx`; its `worker_id` can't be written by a script.  It calls one hook
after the other, as the answers to its private op say.  Its first call is `_hook(defined, memory)`, each later one
`_hook(defined, memory, status, value, error, traceback)`; what is nil at the end may be missing.

- `defined`: bit i says that HOOKS[i] is a global function now.  UNLOADED: the files have not been executed in this VM.
- `memory`: bytes that the VM uses, after the hook and what it deferred.
- `status`: "ok", "error" or "absent" (there is no such function any more).  `error` has the position, `traceback` the
  frames; with a value that is taken, where the hook begins (`file:line`).
- `value`: what the hook returned.  Of filter_item, which is looped over in Lua: a list with the item where it is kept,
  False where it is dropped, True where the hook failed (the status is then "error", with the first of them).  Of
  before_webhook: the JSON text of what it returned; what has no JSON is an error.

The answer is `name, argument, patch, later`, each of which may be missing; without a name the cycle is over.

- `name`: one of HOOKS, or LOAD, which does what the procedure of that name does.  A cycle whose LOAD has failed ends as
  failed.
- `argument`: the first argument of the hook, for on_error the text.  before_webhook is given ordinary items, which are
  made flat in Lua.
- `patch`: a table of what is to be in `ctx`.
- `later`: by name, packed lists of one value, which are read when a script first looks for that name in `ctx`; an empty
  string is the argument itself.  Of `telemetry` Lua makes the `map` from its `stages`.

A failed hook never ends a cycle.  What ends a run otherwise (a limit, a cancel, lack of memory) ends it too; on_error
and on_finally then follow in the worker, each unless it had been asked for.
"""

from __future__ import annotations

HOOKS = (
    "before_fetch",
    "override_fetch",
    "after_fetch",
    "override_extract",
    "after_extract",
    "filter_item",
    "before_store",
    "before_notify",
    "before_webhook",
    "on_success",
    "on_error",
    "on_finally",
    "on_finished",
)
HOOK_OP = "_hook"
ABOUT_ITEMS = frozenset({"override_extract", "after_extract", "filter_item", "before_store", "before_notify"})
LOAD = "load"
UNLOADED = -1

_BITS = {name: 1 << index for index, name in enumerate(HOOKS)}


def bit_of(hook: str) -> int:
    return _BITS[hook]


def is_defined(defined: int, hook: str) -> bool:
    """Whether a worker that reported this has the hook."""
    return defined >= 0 and bool(defined & _BITS[hook])
