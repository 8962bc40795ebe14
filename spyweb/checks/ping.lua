-- /// job
-- every = "1m"
-- values = { host = "192.0.2.1", count = 3, expect = ["loss < 0.5", "latency < 100"], timeout = 10 }
-- ///
-- check = "ping": sends ICMP echo requests.

local function once()
  local count = values.count or 3
  local found, why = ping(values.host, { count = count, timeout = math.min((values.timeout or 10) / count, 10) })
  if not found then return nil, why end
  return { loss = found.loss, latency = found.latency }
end

function run() return check({ "loss < 1" }, " loss latency ", once) end
