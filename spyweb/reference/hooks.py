"""The functions that a job's files may define: when each is called, with what, and what its answer means."""

from __future__ import annotations

from dataclasses import dataclass

from spyweb.reference.entries import Function, function

AS_IF_ABSENT = "as if the hook were absent"
JUST_LOGGED = "logged, and nothing else: the cycle is over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A hook of a monitor job, as the reference shows it."""

    call: Function
    returns: str = "nothing is taken back"
    nothing: str = ""  # what nil and false mean; empty: nothing
    error: str = AS_IF_ABSENT  # under on_hook_error = "skip"
    can_fail: bool = True  # whether "fail" makes it the cycle's failure

    @property
    def name(self) -> str:
        return self.call.name


HOOKS = (
    Hook(
        call=function(
            "before_fetch(request: Request, ctx: Ctx): Request|false|nil",
            "First in a cycle, before anything is fetched.",
        ),
        returns="the request that is made; what can't be missing stays as it was where it is",
        nothing="the cycle ends here, as a success",
    ),
    Hook(
        call=function(
            "override_fetch(request: Request, ctx: Ctx): Response|{error: string|FetchError}|nil",
            "In place of the HTTP client.",
        ),
        returns="the response, or a table with an `error`: then the fetch has failed",
        nothing="the cycle fails",
        error="the fetch has failed, with this error",
    ),
    Hook(
        call=function(
            "after_fetch(fetch_result: FetchResult, ctx: Ctx): FetchResult|Response|false|nil",
            "After every fetch, failed ones too.",
        ),
        returns="of a fetch that is ok its `response.body`; of a failed one a `response`, in place of the failure. "
        "The response may also be returned itself",
        nothing="the cycle ends here, as a success",
    ),
    Hook(
        call=function(
            "override_extract(response: Response, ctx: Ctx): (Item|table<string, string>)[]|nil",
            "In place of the selectors, with whatever status.",
        ),
        returns="the items, each `{fields = {…}}` or just its fields",
        nothing="no items",
        error="no items",
    ),
    Hook(
        call=function("after_extract(items: Item[], ctx: Ctx): Item[]|nil", "With all items of the page."),
        returns="the items that go on",
        nothing="no items",
    ),
    Hook(
        call=function(
            "filter_item(item: Item, ctx: Ctx): Item|boolean|nil",
            "With one item after the other, in place of the keywords.",
        ),
        returns="the item, which goes on, changed or not; or true, which keeps it",
        nothing="this item is dropped",
        error="the keywords decide about this item; the first error is logged, with how many more there were",
    ),
    Hook(
        call=function(
            "before_store(items: Item[], ctx: Ctx): Item[]|false|nil",
            "With the items that are to be stored, if there are any.",
        ),
        returns="the items that are stored where they are new",
        nothing="nothing is stored or sent, and the cycle ends as a success",
    ),
    Hook(
        call=function(
            "before_notify(items: Item[], ctx: Ctx): Item[]|false|nil",
            "With the items that are new and stored, if there are any.",
        ),
        returns="the items that the notification is about",
        nothing="no notification",
    ),
    Hook(
        call=function(
            "before_webhook(payload: Payload, ctx: Ctx): table|false|nil",
            "With what the webhook is about to be sent, if anything is new.",
        ),
        returns="what is sent, as JSON, in its place",
        nothing="no webhook",
    ),
    Hook(
        call=function(
            "on_success(ctx: Ctx)",
            "At the end of a cycle that has not failed, skipped or not.",
            overloads=("fun(ctx: Ctx, result: any)",),  # a script job's
        ),
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        call=function("on_error(err: string, ctx: Ctx)", "At the end of a cycle that has failed."),
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        call=function("on_finally(ctx: Ctx)", "At the end of every cycle, after the other two."),
        error=JUST_LOGGED,
        can_fail=False,
    ),
    Hook(
        call=function("on_finished()", "Once in a run, when all workers have ended all their cycles."),
        error=JUST_LOGGED,
        can_fail=False,
    ),
)

# Of a script job, besides on_success, on_error and on_finally.
ENTRIES = (
    function("run(ctx: Ctx): any result, string? message", "Called for each run of a script job."),
    function(
        "on_state(event: StateEvent, ctx: Ctx): any result, string? message",
        "Called in place of `run` when a change of state starts the job.",
    ),
)
