-- /// job
-- every = "1h"
-- values = { host = "example.org", port = 443, expect = ["days > 14", "chain_ok"], timeout = 10 }
-- ///
-- check = "tls": reads a certificate, and says whether this machine trusts it for that name.

local function once()
  local port = values.port or 443
  local found, why = tls_probe(values.host, port, { timeout = values.timeout })
  if not found then return nil, why end
  local trusted, doubt = tcp_probe(values.host, port, { tls = true, timeout = values.timeout })
  return {
    days = found.days_left, issuer = found.issuer, names = listed(found.names),
    chain_ok = trusted ~= nil, latency = trusted and trusted.latency,
  }, doubt
end

function run() return check({ "days > 14 and chain_ok" }, " days issuer names chain_ok latency ", once) end
