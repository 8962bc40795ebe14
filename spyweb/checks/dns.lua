-- /// job
-- every = "5m"
-- values = { host = "example.org", type = "A", expect = ["records['192.0.2.1']", "ttl <= 3600"], timeout = 10 }
-- ///
-- check = "dns": asks a name server; without `server` that of this machine.

local function once()
  local found, why = dns_query(values.host, values.type or "A", { server = values.server, timeout = values.timeout })
  if not found then return nil, why end
  return { records = listed(found.records), rcode = found.rcode, ttl = found.ttl, latency = found.latency }
end

function run() return check({ "rcode == 'NOERROR' and #records > 0" }, " records rcode ttl latency ", once) end
