-- /// job
-- every = "5m"
-- values = { command = ["/usr/bin/systemctl", "is-active", "nginx"], expect = ["stdout == 'active'"], timeout = 10 }
-- ///
-- check = "command": runs a program, which [permissions] exec must permit.

local SHOWN = 200                   -- bytes of the last line of stderr

local function line(text) return text:sub(-1) == "\n" and text:sub(1, -2) or text end

local function once()
  local found, why = exec.run(values.command, { timeout = values.timeout })
  if not found then return nil, why end
  local stdout, stderr = line(found.stdout), line(found.stderr)
  local last = found.exit_code ~= 0 and stderr:sub(-SHOWN):match("[^\n]*$") or ""
  return { exit = found.exit_code, stdout = stdout, stderr = stderr, latency = found.took_ms }, last ~= "" and last or nil
end

function run() return check({ "exit == 0" }, " exit stdout stderr latency ", once) end
