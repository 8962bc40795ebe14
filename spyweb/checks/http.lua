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
  local found, why = tls_probe(host or authority, tonumber(port) or 443)
  return found and found.days_left or error("no certificate: " .. why, 0)
end

-- A new connection each time: a kept one hides trouble of the name, the port and the certificate.
local function headers()
  local all = { connection = "close" }
  for name, value in pairs(values.headers or {}) do all[name] = value end
  return all
end

local function once()
  local response, failure = http_request{
    url = values.url, method = values.method, headers = headers(), body = values.body,
    timeout = values.timeout, max_body_size = values.max_body_size,
  }
  if not response then return nil, failure.error end
  return {
    status = response.status, latency = response.time_ms, body = response.body, size = response.size,
    headers = response.headers, ip = response.ip, redirects = response.redirects,
    json = function()
      local decoded, why = json_decode(response.body)
      if why then error("the body is no JSON: " .. why, 0) end
      return decoded
    end,
    cert_days = function() return certificate_days(response.url) end,
  }
end

function run() return check({ "status < 400" }, KNOWN, once) end
