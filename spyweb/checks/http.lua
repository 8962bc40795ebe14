-- /// job
-- every = "1m"
-- values = { url = "https://example.org/", expect = ["status == 200", "latency < 800"], confirm = 2, timeout = 10 }
-- ///
-- check = "http": asks an address.

local KNOWN = " status latency body size headers json ip redirects cert_days "

local function certificate_days(url)
  local authority = url:match("^[Hh][Tt][Tt][Pp][Ss]://([^/?#]*)")
  if not authority then error("cert_days is of https addresses", 0) end
  authority = authority:match("[^@]*$")
  local host, port = authority:match("^(.*):(%d+)$")
  local found, why = tls_probe(host or authority, tonumber(port) or 443, { timeout = values.timeout })
  return found and found.days_left or error("no certificate: " .. why, 0)
end

local function once()
  local response, why = fetch()
  if not response then return nil, why end
  return {
    status = response.status, latency = response.time_ms, body = response.body, size = response.size,
    headers = response.headers, ip = response.ip, redirects = response.redirects,
    json = function()
      local decoded, problem = json_decode(response.body)
      if problem then error("the body is no JSON: " .. problem, 0) end
      return decoded
    end,
    cert_days = function() return certificate_days(response.url) end,
  }
end

function run() return check({ "status < 400" }, KNOWN, once) end
