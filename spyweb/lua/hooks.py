"""The list of a monitor job's hooks, and the procedures `load` and `cycle`, by which a worker calls them.

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

The answer is `name, argument, later`, each of which may be missing; without a name the cycle is over.

- `name`: one of HOOKS, or LOAD, which does what the procedure of that name does.  A cycle whose LOAD has failed ends as
  failed.
- `argument`: the first argument of the hook, for on_error the text.  before_webhook is given ordinary items, each with
  an `entry` of what its JSON has beside fields and keywords, which are made flat in Lua.
- `later`: by name, packed lists of one value, which are read when a script first reads that name of `ctx`; an empty
  string is the argument itself.  Of `telemetry` Lua makes the `map` from its `stages`.

A failed hook never ends a cycle.  What ends a run otherwise (a limit, a cancel, lack of memory) ends it too; on_error
and on_finally then follow in the worker, each unless it had been asked for.
"""

from __future__ import annotations

from msgspec import Struct

AS_IF_ABSENT = "the cycle continues as without the hook"
JUST_LOGGED = "logged only: the cycle has ended"


class Hook(Struct, frozen=True, kw_only=True):
    """One hook: its arguments and how its result is used, in the words of the reference."""

    name: str
    signature: str  # its arguments and results, in the notation of reference/language.py
    overloads: tuple[str, ...] = ()
    called: str  # when, and with what
    returns: str = "no result is used"
    nothing: str = ""  # what nil and false mean; empty: nothing
    error: str = AS_IF_ABSENT  # under on_hook_error = "skip"
    can_fail: bool = True  # whether "fail" makes it the cycle's failure
    about_items: bool = False  # it may return very many values


HOOKS = (
    Hook(
        name="before_fetch",
        signature="(request: Request, ctx: Ctx): Request|false|nil",
        called="First in a cycle, before anything is fetched.",
        returns="the request to make; a missing required field keeps its value",
        nothing="the cycle ends here, as a success",
    ),
    Hook(
        name="override_fetch",
        signature="(request: Request, ctx: Ctx): Response|{error: string|FetchError}|nil",
        called="In place of the HTTP client.",
        returns="the response, or a table with an `error`: then the fetch has failed",
        nothing="the cycle fails",
        error="the fetch has failed, with this error",
    ),
    Hook(
        name="after_fetch",
        signature="(fetch_result: FetchResult, ctx: Ctx): FetchResult|Response|false|nil",
        called="After every fetch, also a failed one.",
        returns="the fetch result, with another `response.body` after a success, or with a `response` in place of a "
        "failure; or the response alone",
        nothing="the cycle ends here, as a success",
    ),
    Hook(
        name="override_extract",
        about_items=True,
        signature="(response: Response, ctx: Ctx): (Item|table<string, string>)[]|nil",
        called="In place of the selectors, with any status.",
        returns="the items, each `{fields = {…}}` or just its fields",
        nothing="no items",
        error="no items",
    ),
    Hook(
        name="after_extract",
        about_items=True,
        signature="(items: Item[], ctx: Ctx): Item[]|nil",
        called="With all items of the page.",
        returns="the items for the next stage",
        nothing="no items",
    ),
    Hook(
        name="filter_item",
        about_items=True,
        signature="(item: Item, ctx: Ctx): Item|boolean|nil",
        called="With one item after the other, in place of the keywords.",
        returns="the item, changed or not, which is kept; or true, which keeps it as it is",
        nothing="this item is dropped",
        error="the keywords decide about this item; the first error is logged, with the number of further ones",
    ),
    Hook(
        name="before_store",
        about_items=True,
        signature="(items: Item[], ctx: Ctx): Item[]|false|nil",
        called="With the items to store, if there are any.",
        returns="the items to store; only new ones are stored",
        nothing="nothing is stored or sent, and the cycle ends as a success",
    ),
    Hook(
        name="before_notify",
        about_items=True,
        signature="(items: Item[], ctx: Ctx): Item[]|false|nil",
        called="With the newly stored items, if there are any.",
        returns="the items of the notification",
        nothing="no notification",
    ),
    Hook(
        name="before_webhook",
        signature="(payload: Payload, ctx: Ctx): table|false|nil",
        called="With the payload of the webhook, if anything is new.",
        returns="the JSON to send instead",
        nothing="no webhook",
    ),
    Hook(
        name="on_success",
        signature="(ctx: Ctx)",
        called="At the end of a cycle that has not failed; a skipped one too.",
        overloads=("fun(ctx: Ctx, result: any)",),  # a script job's
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        name="on_error",
        signature="(err: string, ctx: Ctx)",
        called="At the end of a cycle that has failed.",
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        name="on_finally",
        signature="(ctx: Ctx)",
        called="At the end of every cycle, after the other two.",
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        name="on_finished",
        signature="()",
        called="Once in a run, when all cycles of all workers have ended.",
        error=JUST_LOGGED,
        can_fail=False,
    ),
)
# Of scripts and monitors: called with an incident of the job, by a run that does nothing else.
ALERT_HOOKS = ON_DOWN, ON_UP = ("on_down", "on_up")
HOOK_OP = "_hook"
HOOK_NAMES = tuple(hook.name for hook in HOOKS)  # of a cycle
ABOUT_ITEMS = frozenset(hook.name for hook in HOOKS if hook.about_items)
LOAD = "load"
UNLOADED = -1


def is_defined(defined: int, hook: str) -> bool:
    """Return whether the hook is in this mask, which a worker reported."""
    return defined >= 0 and bool(defined & 1 << HOOK_NAMES.index(hook))
