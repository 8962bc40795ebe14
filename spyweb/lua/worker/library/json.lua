-- The functions json_encode and json_decode, and data.to_json and data.parse_json (data.lua).
-- Encoding: compact; object keys sorted, so that equal values give equal texts in every VM; a table with the keys 1..n is
-- an array, an empty one {} (or [] when asked); bytes that are not UTF-8 are written as they are, so any string comes back
-- as it was; a value without JSON (a function, NaN, a cycle) raises an error that names its path.
-- Decoding: strict about syntax, never raises for a bad text; null is nil, integral numbers within 64 bits are integers,
-- a lone surrogate becomes U+FFFD, the last of equal keys counts.
-- Tables are read raw: no metamethod runs, so none can fail, lie or yield here.  State is set anew by each call.

local runtime = ...
local raw, frozen, null, empty_array = runtime.raw, runtime.frozen, runtime.null, runtime.empty_array
local byte, char, find, format = raw.string.byte, raw.string.char, raw.string.find, raw.string.format
local gsub, match, sub = raw.string.gsub, raw.string.match, raw.string.sub
local concat, sort = raw.table.concat, raw.table.sort
local tointeger, utf8_char = raw.math.tointeger, raw.utf8.char
local error, next, rawget, rawlen, type = raw.error, raw.next, raw.rawget, raw.rawlen, raw.type
local tonumber, tostring = raw.tonumber, raw.tostring

local MAX_DEPTH = 1000
local MAX_INPUT = 10 << 20  -- bytes

-- Encoding ---------------------------------------------------------------------------------------------------------

local ESCAPES = {
  ['"'] = '\\"', ["\\"] = "\\\\", ["\b"] = "\\b", ["\f"] = "\\f", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t",
}
for code = 0, 31 do
  local letter = char(code)
  ESCAPES[letter] = ESCAPES[letter] or format("\\u%04x", code)
end

local out, quoted, inside, empty_text  -- the output; names that recur; the tables around; the text for {}
local failure                          -- why it can't be written, or read
local path                             -- to that value, from the inside out

local function refuse(reason)
  failure, path = reason, {}
  return nil
end

local function quote(text) return '"' .. gsub(text, '[\0-\31"\\]', ESCAPES) .. '"' end

-- Returns the shortest of the texts that read back as the same number.
local function float_text(value)
  for digits = 15, 17 do
    local text = format("%." .. digits .. "g", value)
    if tonumber(text) == value then return text end
  end
end

local function number_text(value)
  local integer = tointeger(value)
  if integer then return integer .. "" end
  if value ~= value then return refuse("NaN") end
  if value - value ~= 0 then return refuse("an infinite number") end
  return float_text(value)
end

local put

local function step_out(key)
  path[#path + 1] = type(key) == "number" and format("[%s]", key) or format(".%s", tostring(key))
  return nil
end

local function put_array(contents, length, n, depth)
  out[n] = "["
  n = n + 1
  for i = 1, length do
    local after = put(contents[i], n, depth)
    if not after then return step_out(i) end
    out[after] = ","
    n = after + 1
  end
  out[n - 1] = "]"
  return n
end

local function key_text(key)
  local kind = type(key)
  if kind == "string" then return key end
  if kind == "number" then return number_text(key) end
  return refuse(format("a key of type %s", kind))
end

-- Returns the keys as sorted texts, and the key that each text stands for when it differs from the text.
local function sorted_keys(contents)
  local texts, originals, count = {}, nil, 0
  for key in next, contents do
    local text = key_text(key)
    if not text then return nil end
    if text ~= key then
      if rawget(contents, text) ~= nil then return refuse(format("the keys %s and \"%s\" together", text, text)) end
      originals = originals or {}
      originals[text] = key
    end
    count = count + 1
    texts[count] = text
  end
  sort(texts)
  return texts, originals, count
end

local function put_object(contents, n, depth)
  local texts, originals, count = sorted_keys(contents)
  if not texts then return nil end
  out[n] = "{"
  n = n + 1
  for i = 1, count do
    local text = texts[i]
    local name = quoted[text]
    if not name then
      name = quote(text) .. ":"
      quoted[text] = name
    end
    out[n] = name
    local value = contents[originals and originals[text] or text]
    local after = put(value, n + 1, depth)
    if not after then return step_out(text) end
    out[after] = ","
    n = after + 1
  end
  out[n - 1] = "}"
  return n
end

-- Returns n for a table whose keys are exactly 1..n, otherwise nothing.
local function array_length(contents)
  local length = rawlen(contents)
  if length == 0 then return nil end
  local count = 0
  for _ in next, contents do
    count = count + 1
    if count > length then return nil end
  end
  return count == length and length or nil
end

local function put_contents(contents, n, depth)
  if next(contents) == nil then
    out[n] = empty_text
    return n + 1
  end
  local length = array_length(contents)
  if length then return put_array(contents, length, n, depth) end
  return put_object(contents, n, depth)
end

local function put_table(value, n, depth)
  local sign = inside[value]
  if sign == true then return refuse("a table inside itself") end
  if sign then
    out[n] = sign
    return n + 1
  end
  if depth >= MAX_DEPTH then return refuse(format("a table nested deeper than %d levels", MAX_DEPTH)) end
  inside[value] = true
  n = put_contents(frozen[value] or value, n, depth + 1)
  inside[value] = nil
  return n
end

function put(value, n, depth)
  local kind = type(value)
  if kind == "string" then out[n] = quote(value)
  elseif kind == "number" then
    local text = number_text(value)
    if not text then return nil end
    out[n] = text
  elseif kind == "table" then return put_table(value, n, depth)
  elseif kind == "boolean" then out[n] = value and "true" or "false"
  elseif kind == "nil" then out[n] = "null"
  else return refuse("a " .. kind) end
  return n + 1
end

local function path_text()
  local count = #path
  if count == 0 then return "" end
  if count > 20 then return format(" (%d levels down)", count) end
  for i = 1, count // 2 do path[i], path[count + 1 - i] = path[count + 1 - i], path[i] end
  return " at " .. gsub(concat(path), "^%.", "")
end

-- Returns the text, or nil and what can't be written, and where.
local function write(value, empty_as_array)
  out, quoted, failure = {}, {}, nil
  inside = { [null] = "null", [empty_array] = "[]" }
  empty_text = empty_as_array and "[]" or "{}"
  local text, problem
  if put(value, 1, 0) then text = concat(out) else problem = failure .. path_text() end
  out, quoted = nil, nil
  return text, problem
end

local function encode(value, empty_as_array)
  local text, problem = write(value, empty_as_array)
  if not text then error(format("json_encode can't write %s", problem), 2) end
  return text
end

-- Decoding ---------------------------------------------------------------------------------------------------------

local text, position, depth  -- the input, the next byte, the number of tables around it

local function fail(reason)
  failure = failure or { reason = reason, position = position }
  return nil
end

local UNESCAPED = { b = "\b", f = "\f", n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\", ["/"] = "/" }

-- Reads the four digits of a \u at the position of its backslash.
local function get_unit()
  local digits = match(text, "^\\u(%x%x%x%x)", position)
  if not digits then return nil end
  position = position + 6
  return tonumber(digits, 16)
end

local function get_unicode()
  local high = get_unit()
  if not high then return fail("bad \\u escape") end
  if high < 0xd800 or high > 0xdfff then return utf8_char(high) end
  local start = position
  local low = high < 0xdc00 and get_unit()
  if low and low >= 0xdc00 and low <= 0xdfff then
    return utf8_char(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00))
  end
  position = start
  return "\u{fffd}"
end

local function get_escape()
  local letter = sub(text, position + 1, position + 1)
  if letter == "u" then return get_unicode() end
  local plain = UNESCAPED[letter]
  if not plain then return fail("bad escape") end
  position = position + 2
  return plain
end

-- Reads a string with escapes; the position is that of its first character.
local function get_long_string()
  local pieces, n = {}, 0
  while true do
    local stop = find(text, '[\0-\31"\\]', position)
    if not stop then return fail("string without an end") end
    n = n + 1
    pieces[n] = sub(text, position, stop - 1)
    position = stop
    local code = byte(text, stop)
    if code == 34 then
      position = stop + 1
      return concat(pieces)
    end
    if code ~= 92 then return fail("control character in a string") end
    n = n + 1
    pieces[n] = get_escape()
    if failure then return nil end
  end
end

local function get_string()
  local body, after = match(text, '^([^\0-\31"\\]*)"()', position + 1)
  if body then
    position = after
    return body
  end
  position = position + 1
  return get_long_string()
end

local function get_any_number()
  local token, after = match(text, "^(-?%d+%.?%d*[eE]?[+-]?%d*)()", position)
  local number = token and tonumber(token)
  if not number or find(token, "^-?0%d") or find(token, "%.%D") or find(token, "%.$") then return fail("bad number") end
  if number - number ~= 0 then return fail("number out of range") end
  position = after
  return tointeger(number) or number
end

-- Most numbers are plain integers.
local function get_number()
  local digits, after = match(text, "^(-?[1-9]%d*)()", position)
  local following = digits and byte(text, after) or 0
  if not digits or #digits > 300 or following == 46 or following == 101 or following == 69 then return get_any_number() end
  position = after
  return tonumber(digits)
end

local value

local function deeper()
  depth = depth + 1
  if depth > MAX_DEPTH then return fail(format("nested deeper than %d levels", MAX_DEPTH)) end
  return true
end

local function get_array()
  if not deeper() then return nil end
  local list, n = {}, 0
  local after = match(text, "^%[[ \n\r\t]*%]()", position)
  if after then
    position, depth = after, depth - 1
    return list
  end
  position = match(text, "^[ \n\r\t]*()", position + 1)
  while true do
    local item = value()
    if item == nil and failure then return nil end
    n = n + 1
    list[n] = item
    local sign, next_item = match(text, "^[ \n\r\t]*([,%]])[ \n\r\t]*()", position)
    if not sign then return fail("expected ',' or ']'") end
    position = next_item
    if sign == "]" then break end
  end
  depth = depth - 1
  return list
end

local function get_key()
  local key, after = match(text, '^"([^\0-\31"\\]*)"[ \n\r\t]*:[ \n\r\t]*()', position)
  if not key then
    if byte(text, position) ~= 34 then return fail("expected a string as key") end
    key = get_string()
    if not key then return nil end
    after = match(text, "^[ \n\r\t]*:[ \n\r\t]*()", position)
    if not after then return fail("expected ':'") end
  end
  position = after
  return key
end

local function get_object()
  if not deeper() then return nil end
  local object = {}
  local after = match(text, "^{[ \n\r\t]*}()", position)
  if after then
    position, depth = after, depth - 1
    return object
  end
  position = match(text, "^[ \n\r\t]*()", position + 1)
  while true do
    local key = get_key()
    if not key then return nil end
    local member = value()
    if member == nil and failure then return nil end
    object[key] = member
    local sign, next_key = match(text, "^[ \n\r\t]*([,}])[ \n\r\t]*()", position)
    if not sign then return fail("expected ',' or '}'") end
    position = next_key
    if sign == "}" then break end
  end
  depth = depth - 1
  return object
end

local function get_word(word, meaning)
  if sub(text, position, position + #word - 1) ~= word then return fail("expected a value") end
  position = position + #word
  return meaning
end

function value()
  local code = byte(text, position)
  if code == 34 then return get_string()
  elseif code == 123 then return get_object()
  elseif code == 91 then return get_array()
  elseif code == 116 then return get_word("true", true)
  elseif code == 102 then return get_word("false", false)
  elseif code == 110 then return get_word("null", nil)
  elseif code == 45 or code and code >= 48 and code <= 57 then return get_number() end
  return fail("expected a value")
end

local function failure_text()
  local at = failure.position
  if at > #text then return format("%s at the end of the text", failure.reason) end
  local before = sub(text, 1, at - 1)
  local _, lines = gsub(before, "\n", "")
  local column = #match(before, "[^\n]*$") + 1
  return format("%s at line %d, column %d (byte %d)", failure.reason, lines + 1, column, at)
end

local function read_all()
  position = match(text, "^[ \n\r\t]*()")
  local result = value()
  if failure then return nil end
  position = match(text, "^[ \n\r\t]*()", position)
  if position <= #text then return fail("expected the end") end
  return result
end

local function decode(source, name)
  if type(source) == "number" then source = tostring(source) end
  if type(source) ~= "string" then runtime.bad_argument(1, name or "json_decode", "string", source) end
  if #source > MAX_INPUT then
    return nil, format("JSON text of %d bytes is over the limit of %d", #source, MAX_INPUT)
  end
  text, depth, failure = source, 0, nil
  local result = read_all()
  local message = failure and failure_text() or nil
  text, failure = nil, nil
  return result, message
end

return { json_encode = encode, json_decode = function(source) return decode(source) end, write = write, read = decode }
