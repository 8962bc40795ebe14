-- Writes YAML 1.2 for data.to_yaml: keys sorted, lists and maps in lines of their own, texts without quotes where every
-- reader takes them for a text.  What data.parse_yaml would not read is refused.  Tables are read raw.

local runtime = ...
local raw, frozen, null, empty_array = runtime.raw, runtime.frozen, runtime.null, runtime.empty_array
local byte, find, format, gsub = raw.string.byte, raw.string.find, raw.string.format, raw.string.gsub
local lower, rep = raw.string.lower, raw.string.rep
local concat, sort, utf8_length = raw.table.concat, raw.table.sort, raw.utf8.len
local tointeger, next, rawequal, rawlen, type = raw.math.tointeger, raw.next, raw.rawequal, raw.rawlen, raw.type

local LEVELS, NODES, LARGEST = 100, 100000, 1 << 20             -- extraction/worker/yaml_text.py, ops/data.py
local LONGEST_KEY = 1000                                        -- bytes on a line with its value: YAML has 1,024 characters

-- Words that a reader of this or of an older version takes for something else.
local WORDS = {}
for word in raw.string.gmatch("null true false yes no on off y n", "%a+") do WORDS[word] = true end

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local out, size, nodes, inside, failure, path  -- set anew by each call

local function refuse(reason)
  failure, path = failure or reason, path or {}
  return nil
end

local function add(text)
  size = size + #text
  if size > LARGEST then return refuse "more than 1 MB of text" end
  out[#out + 1] = text
  return true
end

local function escape(letter) return ESCAPES[letter] or format("\\x%02x", byte(letter)) end

local function text_of(text)
  if find(text, "^[%a_/][%w_./@+ -]*$") and not find(text, " $") and not WORDS[lower(text)] then return text end
  if not utf8_length(text) then return refuse "a text that is not UTF-8" end
  text = gsub(text, '[\0-\31"\\\127]', escape)
  text = gsub(text, "\xc2([\x80-\x9f])", function(last) return format("\\x%02x", byte(last)) end)
  text = gsub(text, "\xe2\x80([\xa8\xa9])", { ["\xa8"] = "\\u2028", ["\xa9"] = "\\u2029" })
  text = gsub(text, "\xef([\xbb\xbf][\xbe\xbf])", { ["\xbb\xbf"] = "\\ufeff", ["\xbf\xbe"] = "\\ufffe", ["\xbf\xbf"] = "\\uffff" })
  return '"' .. text .. '"'
end

local function number_of(value)
  local integer = tointeger(value)
  if integer then return integer .. "" end
  if value ~= value then return ".nan" end
  if value - value ~= 0 then return value > 0 and ".inf" or "-.inf" end
  for digits = 15, 17 do
    local text = format("%." .. digits .. "g", value)
    if raw.tonumber(text) == value then return text end
  end
end

local function scalar_of(value)
  local kind = type(value)
  if kind == "string" then return text_of(value) end
  if kind == "number" then return number_of(value) end
  if kind == "boolean" then return value and "true" or "false" end
  if kind == "nil" or rawequal(value, null) then return "null" end
  if rawequal(value, empty_array) then return "[]" end
  if kind == "table" then return next(frozen[value] or value) == nil and "{}" or nil end
  return refuse("a " .. kind)
end

-- Returns n for a table whose keys are exactly 1..n, otherwise nothing.
local function array_length(contents)
  local length = rawlen(contents)
  local count = 0
  for _ in next, contents do
    count = count + 1
    if count > length then return nil end
  end
  return count == length and length or nil
end

local function key_text(key)
  if type(key) == "string" then return key end
  if type(key) == "number" then return number_of(key) end
  return refuse(format("a key of type %s", type(key)))
end

local function sorted_keys(contents)
  local texts, originals = {}, {}
  for key in next, contents do
    local text = key_text(key)
    if not text then return nil end
    if originals[text] ~= nil then return refuse(format('the keys %s and "%s" together', text, text)) end
    originals[text] = key
    texts[#texts + 1] = text
  end
  sort(texts)
  return texts, originals
end

local put

local function step_out(key)
  path[#path + 1] = type(key) == "number" and format("[%s]", key) or "." .. key
  return nil
end

-- Writes a value behind a key or a dash, `lead`, which begins a line that is indented so far.
local function put_behind(lead, value, indent, is_in_list)
  local scalar = scalar_of(value)
  if failure then return nil end
  nodes = nodes + 1
  if nodes > NODES then return refuse(format("more than %d values", NODES)) end
  if scalar then return add(lead .. " " .. scalar .. "\n") end
  if is_in_list then return add(lead .. " ") and put(value, indent + 2, true) end
  return add(lead .. "\n") and put(value, indent + 2)
end

local function put_list(contents, length, indent, is_on_the_line)
  for i = 1, length do
    local margin = is_on_the_line and i == 1 and "" or rep(" ", indent)
    if not put_behind(margin .. "-", contents[i], indent, true) then return step_out(i) end
  end
  return true
end

local function put_map(contents, indent, is_on_the_line)
  local texts, originals = sorted_keys(contents)
  if not texts then return nil end
  for i = 1, #texts do
    local text = texts[i]
    local margin = is_on_the_line and i == 1 and "" or rep(" ", indent)
    local key = type(originals[text]) == "number" and text or text_of(text)
    if not key then return nil end
    if #key > LONGEST_KEY then key = "? " .. key .. "\n" .. rep(" ", indent) end
    if not put_behind(margin .. key .. ":", contents[originals[text]], indent) then return step_out(text) end
  end
  return true
end

-- Writes a table that is not empty; its first line has begun already, or not.
function put(value, indent, is_on_the_line)
  if inside[value] then return refuse "a table inside itself" end
  if indent > LEVELS * 2 - 2 then return refuse(format("a table nested deeper than %d levels", LEVELS)) end
  inside[value] = true
  local contents = frozen[value] or value
  local length = array_length(contents)
  local ok
  if length then ok = put_list(contents, length, indent, is_on_the_line) else ok = put_map(contents, indent, is_on_the_line) end
  inside[value] = nil
  return ok
end

local function where()
  local count = #path
  if count == 0 then return "" end
  if count > 20 then return format(" (%d levels down)", count) end
  for i = 1, count // 2 do path[i], path[count + 1 - i] = path[count + 1 - i], path[i] end
  return " at " .. gsub(concat(path), "^%.", "")
end

local function write(value)
  out, size, nodes, inside, failure, path = {}, 0, 1, {}, nil, nil
  local scalar = scalar_of(value)
  if scalar then add(scalar .. "\n") elseif not failure then put(value, 0) end
  local text, problem
  if failure then problem = failure .. where() else text = concat(out) end
  out, inside = nil, nil
  return text, problem
end

return { write = write }
