-- The modules of sloth-runner that this version does not have, with what to use in their place.  Their names are nil, as
-- every undefined name: a script may test them, and define globals with these names.  The error of one
-- that takes them for modules says so.  Loads with the first such error.
-- The linter has the same list, in specs/linting/names.py.

local runtime = ...
local find, format, sub = runtime.raw.string.find, runtime.raw.string.format, runtime.raw.string.sub
local ipairs = runtime.raw.ipairs

local FAMILIES = {
  { "async goroutine", "use parallel(f, g) or parallel_map(list, f, limit)" },
  { "cron firewall lvm nfs nixos pkg raid service smb ssh stow sysctl systemd user",
    "use the machine's own tool, with exec.run" },
  { "docker frp git helm incus kubernetes pulumi python salt terraform", "use the program itself, with exec.run" },
  { "aws azure digitalocean gcp", "use http_request, or the program itself with exec.run" },
  { "file_ops", "use file.copy, file.template, file.line, file.mkdir, file.remove and file.stat" },
  { "fs", "use fs_read, fs_append and fs_overwrite" },
  { "http net", "use http_get, http_post and http_request" },
  { "network", "use ping, dns_query, tcp_probe and tls_probe" },
  { "db", "use db_query and db_exec" },
  { "circuit reliability", "use retries of a task or a job" },
  { "notification notifications", "use notify, or a webhook" },
  { "event hook", "use on, after and on_failure in the job's block" },
  { "watcher", "use a job with every, which compares with what it stored" },
  { "metrics monitoring observability", "use state.increment; spyweb's own are in /healthz and /api/runs" },
  { "facts sysinfo system", "use engine.os and engine.arch, the rest with exec.run" },
  { "secrets", 'env_get("NAME") reads the variable SPYWEB_NAME' },
  { "export stack", "use outputs of tasks, or state.set" },
  { "import", "use require" },
  { "validate", "use string.match and type" },
  { "strings", "use string and utf8" },
  { "time", "use os.time, os.date and sleep" },
  { "workdir", "use this.workdir" },
  { "test", "use spyweb test" },
  { "chain", "use depends_on of a task" },
  { "when", "use run_if of a task" },
  { "group", "use workflow.define" },
  { "saga", "use on_failure of a task" },
  { "agent ai core gitops help infra_test modules perf resource security sloth utils" },
}

local absent = {}

-- Returns the text for a module of this name, or nil for a name that is none.
function absent.reason(name)
  for _, family in ipairs(FAMILIES) do
    if find(" " .. family[1] .. " ", " " .. name .. " ", 1, true) then
      local text = format("sloth-runner's %s is not part of this version", name)
      return family[2] and text .. ": " .. family[2] or text
    end
  end
end

-- Returns an error of Lua about a global that is nil, with a hint about its name.
function absent.explain(text)
  local _, last, name = find(text, "a nil value %(global '([%a_][%w_]*)'%)")
  local reason = name and absent.reason(name)
  if not reason or find(text, reason, last, true) then return text end
  return sub(text, 1, last) .. "; " .. reason .. sub(text, last + 1)
end

return absent
