"""The functions that need no op: what lua/worker/ puts into a script's globals, besides Lua's own."""

from __future__ import annotations

from spyweb.reference.entries import Family, function
from spyweb.specs.linting.names import ABSENT_FAMILIES

PLAIN = "Only a wrong type of argument raises."

LOG = Family(
    name="log",
    errors="Nothing raises.",
    functions=(
        function("log(...: any)", "A line in the job's `hooks.log`, and in the daemon's log."),
        function("log.debug(...: any)", "The same at the level debug."),
        function("log.info(...: any)", "The same as `log` itself."),
        function("log.warn(...: any)", "The same at the level warn."),
        function("log.error(...: any)", "The same at the level error."),
        function("print(...: any)", "A line in the daemon's log alone."),
        function("dump(value: any): string text", "A value as text for people, tables with all that is in them."),
    ),
)

JSON = Family(
    name="JSON",
    errors="`json_encode` raises where JSON has no such value: a function, NaN, a table inside itself. "
    "`json_decode` gives nil and a message.",
    functions=(
        function(
            "json_encode(value: any, empty_as_array?: boolean): string text",
            "Compact JSON. An empty table is `{}`, or `[]` where that is asked for or it is `JSON_EMPTY_ARRAY`.",
        ),
        function(
            "json_decode(text: string): any value, string? message",
            "The value of a JSON text, up to 10 MB of it. JSON's null is nil.",
        ),
    ),
)

TABLES = Family(
    name="environment and tables",
    errors="`require` raises when there is no such module, or it fails. The others raise for a wrong type of argument.",
    functions=(
        function(
            "env_get(name: string): string? value",
            "The variable `SPYWEB_NAME`, or nil; no other, none of `env_deny`.",
        ),
        function("copy(value: table): table", "A copy, one level deep."),
        function("deep_copy(value: table): table", "A copy of everything in it; cycles are kept."),
        function(
            "defer(fn: fun())",
            "Calls `fn` when the current hook or run ends, however it ends; the last one first. An error in one does "
            "not stop the next. Only in the server may it call functions that wait.",
        ),
        function(
            "skip(reason?: string): {skipped: string}",
            'For `return skip("open: not asking")`: the run decided that there was nothing to do. Its outcome is '
            "`skipped`, neither success nor failure. Only `run`, or a script without one, can return it.",
        ),
        function(
            "require(name: string): any module",
            "The module `NAME.lua` or `NAME/init.lua` in the job's folder, then in the project; a dot is a slash. "
            "Without such a file a library of that name, as `log`. A file is executed once in a VM.",
            waits=True,
        ),
    ),
)

BRANCHES = Family(
    name="several calls at once",
    errors="The first error ends the other functions at once and is raised: a text with ` (function 3 of parallel)` "
    "behind it, any other value as it is.",
    functions=(
        function(
            "parallel(...: fun(): any): any ...",
            "Calls all functions, up to 1,000, and gives the first result of each. While one waits in a function that "
            "waits the others go on.",
            waits=True,
        ),
        function(
            "parallel_map(list: any[], fn: (fun(item: any, index: integer): any), limit?: integer): any[] results, "
            "integer length",
            "Calls `fn` with each item and its number, at most `limit` at once (10; up to 1,000), and gives the first "
            "results.",
            waits=True,
        ),
    ),
)

STATE = Family(
    name="locks",
    errors="`state.with_lock` gives nil and the text then; for an error inside it nil, its text and the error.",
    functions=(
        function(
            "state.with_lock(name: string, fn: fun(): ..., timeout?: number): any ...",
            "Calls `fn` with a lock and gives what it gives. The lock is released however `fn` ends.",
            waits=True,
            overloads=("fun(name: string, holder: string, timeout: number, fn: fun(): ...): any",),
        ),
    ),
)

LUAU = Family(
    name="Luau's conveniences",
    errors=PLAIN,
    functions=(
        function(
            "string.split(text: string, separator?: string): string[] parts",
            "The parts between the separators, or commas.",
        ),
        function(
            "table.find(list: any[], value: any, init?: integer): integer? position", "Where the first such value is."
        ),
        function("table.clone(t: table): table", "A copy, one level deep."),
        function("table.clear(t: table)", "Takes everything out."),
        function("table.create(count: integer, value?: any): any[]", "A list of that length."),
        function("table.freeze(t: table): table", "Makes this very table read-only."),
        function("table.isfrozen(t: table): boolean", "Whether it is."),
        function("math.round(x: number): integer", "The nearest whole number, halves away from zero."),
        function("math.clamp(x: number, low: number, high: number): number", "The nearest number within the bounds."),
        function("math.sign(x: number): integer", "1, 0 or -1."),
        function("unpack(list: any[], first?: integer, last?: integer): any ...", "As `table.unpack`."),
        function("loadstring(text: string, name?: string): function? chunk, string? message", "As `load`."),
    ),
)

BITS = Family(
    name="bit32",
    errors=PLAIN,
    functions=(
        function("bit32.band(...: integer): integer", "And, of all of them."),
        function("bit32.bor(...: integer): integer", "Or."),
        function("bit32.bxor(...: integer): integer", "Exclusive or."),
        function("bit32.btest(...: integer): boolean", "Whether their `band` is not 0."),
        function("bit32.bnot(x: integer): integer", "Not."),
        function("bit32.lshift(x: integer, by: integer): integer", "To the left."),
        function("bit32.rshift(x: integer, by: integer): integer", "To the right, zeros follow."),
        function("bit32.arshift(x: integer, by: integer): integer", "To the right, the sign follows."),
        function("bit32.lrotate(x: integer, by: integer): integer", "To the left, and in again."),
        function("bit32.rrotate(x: integer, by: integer): integer", "To the right, and in again."),
        function("bit32.extract(x: integer, field: integer, width?: integer): integer", "Some bits of it."),
        function(
            "bit32.replace(x: integer, value: integer, field: integer, width?: integer): integer",
            "With other bits there.",
        ),
        function("bit32.countlz(x: integer): integer", "How many zeros it begins with."),
        function("bit32.countrz(x: integer): integer", "How many zeros it ends with."),
        function("bit32.byteswap(x: integer): integer", "Its four bytes in the other order."),
    ),
)

TASKS = Family(
    name="tasks",
    errors="An unknown key or method, a name that is taken and a value that makes no sense raise where it stands.",
    functions=(
        function(
            "task(name: string|table): Task",
            'Declares a task. With a table, `task{name = "build", run = f}`, the keys are those of the methods.',
        ),
        function("workflow(name: string): Workflow", "The same as `workflow.define(name)`."),
        function(
            "workflow.define(name: string, settings?: table): Workflow",
            "Declares a workflow. The keys of a table are those of the methods.",
        ),
    ),
)

KEPT = Family(
    name="kept files",
    errors="A template that can't be rendered is nil and a message too.",
    functions=(
        function(
            "file.template(given: table): FileOutcome? outcome, string? message",
            "Make the file `dest` what a template gives: `src` or `text`, with `vars`, as for `template.render`.",
            waits=True,
        ),
    ),
)

TEMPLATES = Family(
    name="templates",
    errors="Gives nil and a message with the line for a name that is not there, and for what is no template.",
    functions=(
        function(
            "template.render(given: table): string? text, string? message",
            'The text of a template: `{src = "a.tmpl"}`, a file, or `{text = "..."}`, with the values in `vars`.',
            waits=True,
        ),
    ),
)

DATA = Family(
    name="data",
    errors="Each gives nil and a message for what it can't read or write; a wrong type raises.",
    functions=(
        function(
            "data.to_json(value: any): string? text, string? message",
            "As `json_encode`, and gives nil and a message where that raises.",
        ),
        function("data.parse_json(text: string): any value, string? message", "As `json_decode`."),
        function(
            "data.to_yaml(value: any): string? text, string? message",
            "YAML, a key a line, sorted. At most 1 MB, 100 levels and 100,000 values.",
        ),
    ),
)

CRYPTO = Family(
    name="crypto",
    errors="A wrong type raises; `crypto.base64_decode` gives nil and a message for a text that is not base64. They "
    "work in callbacks too; texts of more than 1 MB, except in `crypto.equal`, make them wait.",
    functions=(
        function("crypto.sha256(text: string): string hex", "The SHA-256 of a text, in hexadecimal."),
        function("crypto.sha512(text: string): string hex", "The SHA-512."),
        function("crypto.sha1(text: string): string hex", "The SHA-1: for what others ask for, not for secrets."),
        function("crypto.md5(text: string): string hex", "The MD5: the same."),
        function("crypto.hmac_sha256(key: string, text: string): string hex", "The HMAC with SHA-256."),
        function("crypto.base64_encode(text: string): string base64", "The text in base64, in one line."),
        function(
            "crypto.base64_decode(base64: string): string? text, string? message",
            "The text of a base64, with its padding; line ends in it are skipped.",
        ),
        function("crypto.equal(left: string, right: string): boolean", "Compares in constant time, for secrets."),
        function("crypto.uuid(): string uuid", "A random UUID (version 4)."),
        function(
            "crypto.random_string(length: integer): string text",
            "Random letters and digits, fit for secrets; up to 1,048,576.",
        ),
    ),
)

TESTS = Family(
    name="tests",
    errors="They raise at the line of the test, with both values.",
    functions=(
        function(
            "spyweb.assert_eq(left: any, right: any, message?: string)",
            "Raises unless both are equal; tables are compared deeply. Only in tests.",
        ),
        function(
            "spyweb.assert_ne(left: any, right: any, message?: string)", "Raises where both are equal. Only in tests."
        ),
    ),
)

FAMILIES = (LOG, JSON, TABLES, BRANCHES, STATE, TASKS, KEPT, TEMPLATES, DATA, CRYPTO, LUAU, BITS, TESTS)
ABSENT = tuple(name.decode() for name in ABSENT_FAMILIES)  # they raise, whatever is asked of them
METHODS = ("get", "post", "put", "patch", "delete", "all")  # tables of the server's handlers
