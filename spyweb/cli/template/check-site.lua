-- /// job
-- description = "Fails when a page does not answer, and logs each change between up and down."
-- every = "1m"
-- timeout = "20s"
-- ///

local url = "https://example.com/"

local function look()
  local response, err = http_get(url)
  if not response then
    return "down", err.error
  end
  return response.status < 400 and "up" or "down", "status " .. response.status
end

function run()
  local state, detail = look()
  if state ~= store_get("state") then
    log(url .. " is " .. state .. " (" .. detail .. ")")
    store_set("state", state)
  end
  if state == "down" then
    return nil, url .. ": " .. detail
  end
  return detail
end
