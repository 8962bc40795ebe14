-- The table of headers of a request or response: its names are in lower case, and lookups ignore case.

local runtime = ...
local raw = runtime.raw
local lower, rawget, setmetatable, type = raw.string.lower, raw.rawget, raw.setmetatable, raw.type

-- Finds a name that is not there as it is written.
local function find(headers, name)
  return type(name) == "string" and rawget(headers, lower(name)) or nil
end

-- Hidden: a script that could put a __gc into this metatable would have it armed by the next response.
local HEADERS = { __metatable = false, __index = find }

local function with_headers(response, ...)
  local headers = type(response) == "table" and response.headers
  if type(headers) == "table" then setmetatable(headers, HEADERS) end
  return response, ...
end

return { find = find, with_headers = with_headers }
