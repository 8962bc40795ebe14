"""The procedures that a worker can be asked to run in a VM (BeginRun), with their arguments.

`run(ctx, may_retry)` and `trigger(ctx, may_retry, event, conditions)` are a script job's runs.  `load()` and
`cycle(ctx)` are a monitor's: see hooks.py.  `alert(ctx, may_retry, name, incident)` calls the function of a script that
is told of an incident; where there is none, also once the file has been executed, the run is skipped.  The others are
meant for a VM of their own, whose files they execute first.

`request(request)` answers one HTTP request of a Lua endpoint.  `request` is a table with `method`, `path`, `path_args`,
`query`, `headers` (names in lower case), `body`, `client_ip`, and for itself `route`, the name of the handler, and
`is_public`.  The tables that handlers are put in are there before the files are executed.  The answer leaves by the
private op `_respond(status, headers, body)`: an integer from 100 to 599, a table of texts or nil, bytes.  Which headers
may be sent is for the daemon to say.  What was deferred follows, and may call ops; then the run ends.  A short answer
without headers, after which nothing follows, is the run's result instead, `{status, body}`: that saves a round trip.
A run that fails has not responded, except that, with something deferred, it says so by `_respond()`: its end will tell
why.

`tests(options)` gives, as its result, the sorted names of all global functions that begin with `test_`.

`test(name, options)` calls one of them, with `ctx`, and then what it deferred; no hook follows.  Where the text of its
error has several lines (an assertion that shows both values) the traceback begins with all of it.

`options` may have `ctx`; `globals`, a table of what is to be in the globals; `routes`: true gives the tables of a
server; `virtual_time`: true makes each `sleep` move os.time, os.date and os.clock on by what it was asked for, once the
daemon has answered it, which may be at once.
"""

from __future__ import annotations

from enum import StrEnum


class Procedure(StrEnum):
    RUN = "run"
    TRIGGER = "trigger"
    ALERT = "alert"
    LOAD = "load"
    CYCLE = "cycle"
    REQUEST = "request"
    TESTS = "tests"
    TEST = "test"
