"""The names of a script's globals, and the replacements for names that do not exist.

A command that reads files imports neither Lua nor the ops: a test compares them with a real VM.
"""

from __future__ import annotations

from collections.abc import Mapping

KEYWORDS = frozenset(
    b"and break do else elseif end false for function goto if in local nil not or repeat return then true until while"
    .split()
)  # fmt: skip

GLOBALS = frozenset(
    b"JSON_EMPTY_ARRAY _ENV _G _VERSION assert bit32 cdp cmd collectgarbage copy coroutine crypto data db_exec "
    b"db_query deep_copy defer dns_query dump engine env_get error exec file fs_append fs_overwrite fs_read "
    b"fs_read_binary getmetatable global_store_delete global_store_get global_store_incr global_store_set http_get "
    b"http_multipart http_post http_request ipairs json_decode json_encode load loadstring log math next notify "
    b"os pairs parallel parallel_map pcall ping print rawequal rawget rawlen rawset require select setmetatable skip "
    b"sleep state store_delete store_get store_set string table task tcp_probe template tls_probe tonumber tostring "
    b"type unpack utf8 values Values workflow xpcall".split()
)
MEMBERS: Mapping[bytes, frozenset[bytes]] = {
    table: frozenset(names.split())
    for table, names in {
        b"bit32": b"arshift band bnot bor btest bxor byteswap countlz countrz extract lrotate lshift replace rrotate "
        b"rshift",
        b"coroutine": b"close create isyieldable resume running status wrap yield",
        b"crypto": b"base64_decode base64_encode equal hmac_sha256 md5 random_string sha1 sha256 sha512 uuid",
        b"data": b"parse_json parse_yaml to_json to_yaml",
        b"exec": b"run",
        b"file": b"copy line mkdir remove stat template",
        b"log": b"debug error info warn",
        b"math": b"abs acos asin atan ceil clamp cos deg exp floor fmod huge log max maxinteger min mininteger modf pi "
        b"rad random randomseed round sign sin sqrt tan tointeger type ult",
        b"os": b"clock date difftime time",
        b"state": b"append clear compare_swap decrement delete exists get get_ttl get_version history increment "
        b"is_locked keys list list_groups list_length list_pop list_push lock null rollback set set_ttl set_with_ttl "
        b"stats try_lock unlock update with_lock",
        b"string": b"byte char find format gmatch gsub len lower match pack packsize rep reverse split sub unpack "
        b"upper",
        b"table": b"clear clone concat create find freeze insert isfrozen move pack remove sort unpack",
        b"template": b"render",
        b"utf8": b"char charpattern codepoint codes len offset",
        b"workflow": b"define",
    }.items()
}
ABSENT_FAMILIES = (b"cdp",)  # placeholders: every use of them raises
SERVER = frozenset(b"all delete get patch post public put".split())  # the tables of handlers in server/init.lua

# Modules of sloth-runner that are nil here, with what to use instead.  lua/worker/library/absent.lua has them too.
ABSENT: Mapping[str, str] = {
    name: use
    for names, use in (
        ("async goroutine", "use parallel(f, g) or parallel_map(list, f, limit)"),
        (
            "cron firewall lvm nfs nixos pkg raid service smb ssh stow sysctl systemd user",
            "use the machine's own tool, with exec.run",
        ),
        ("docker frp git helm incus kubernetes pulumi python salt terraform", "use the program itself, with exec.run"),
        ("aws azure digitalocean gcp", "use http_request, or the program itself with exec.run"),
        ("file_ops", "use file.copy, file.template, file.line, file.mkdir, file.remove and file.stat"),
        ("fs", "use fs_read, fs_append and fs_overwrite"),
        ("http net", "use http_get, http_post and http_request"),
        ("network", "use ping, dns_query, tcp_probe and tls_probe"),
        ("db", "use db_query and db_exec"),
        ("circuit reliability", "use retries of a task or a job"),
        ("notification notifications", "use notify, or a webhook"),
        ("event hook", "use on, after and on_failure in the job's block"),
        ("watcher", "use a job with every, which compares with what it stored"),
        ("metrics monitoring observability", "use state.increment; spyweb's own are in /healthz and /api/runs"),
        ("facts sysinfo system", "use engine.os and engine.arch, the rest with exec.run"),
        ("secrets", 'env_get("NAME") reads the variable SPYWEB_NAME'),
        ("export stack", "use outputs of tasks, or state.set"),
        ("import", "use require"),
        ("validate", "use string.match and type"),
        ("strings", "use string and utf8"),
        ("time", "use os.time, os.date and sleep"),
        ("workdir", "use this.workdir"),
        ("test", "use spyweb test"),
        ("chain", "use depends_on of a task"),
        ("when", "use run_if of a task"),
        ("group", "use workflow.define"),
        ("saga", "use on_failure of a task"),
        ("agent ai core gitops help infra_test modules perf resource security sloth utils", ""),
    )
    for name in names.split()
}

INSTEAD: Mapping[str, str] = {
    "debug": "an error has its traceback in `spyweb runs`",
    "dofile": "require loads a file of the project",
    "getfenv": "Lua 5.4 has _ENV",
    "io": "fs_read, fs_append and fs_overwrite are for files",
    "json": "json_encode and json_decode are for JSON",
    "loadfile": "require loads a file of the project",
    "log.fatal": "log.error",
    "log.print": "print",
    "log.success": "log.info",
    "log.table": "log(dump(value))",
    "math.log10": "math.log(x, 10)",
    "math.pow": "x ^ y",
    "os.execute": "use exec.run",
    "os.exit": "return ends a run, error fails it",
    "os.getenv": 'env_get("NAME") reads the variable SPYWEB_NAME',
    "os.remove": "fs_overwrite writes a file anew",
    "os.rename": "fs_overwrite writes a file anew",
    "package": "require searches the job's folder and the project",
    "setfenv": "load takes an environment",
    "string.gfind": "string.gmatch",
    "table.getn": "#t",
    "wait": "sleep(milliseconds)",
    "warn": "log.warn",
}
