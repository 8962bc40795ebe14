-- /// job
-- every = "1m"
-- values = { host = "example.org", port = 25, expect = ["banner:find('^220')"], timeout = 10 }
-- ///
-- check = "tcp": connects to a port, and reads the first line where a condition names `banner`, or `send` asks for it.

local BANNER = 1024                 -- bytes at most

local function once(conditions)
  local wants_banner = table.concat(conditions, " "):find("banner", 1, true)
  local found, why = tcp_probe(values.host, values.port, {
    send = values.send, read = wants_banner and BANNER or nil, tls = values.tls, timeout = values.timeout,
  })
  return { connected = found ~= nil, latency = found and found.latency, banner = found and found.banner }, why
end

function run() return check({ "connected" }, " connected latency banner ", once) end
