-- The function dump: shows a value as text for people.  Lists in order, other keys sorted (numbers first), one line per
-- member; a table inside itself, too deep nesting and other types are named in angle brackets.  Tables are read raw: no
-- metamethod runs.

local runtime = ...
local raw, frozen, null = runtime.raw, runtime.frozen, runtime.null
local byte, find, format, gsub, rep = raw.string.byte, raw.string.find, raw.string.format, raw.string.gsub, raw.string.rep
local concat, sort = raw.table.concat, raw.table.sort
local math_type, next, tointeger, tostring, type = raw.math.type, raw.next, raw.math.tointeger, raw.tostring, raw.type
local rawequal, rawget, rawlen = raw.rawequal, raw.rawget, raw.rawlen

runtime.complete()                      -- the table may be `_G`
local whole = runtime.whole

local MAX_DEPTH = 32
local ESCAPES = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

local function escape(letter) return ESCAPES[letter] or format("\\%03d", byte(letter)) end

local function quote(text) return '"' .. gsub(text, '[\0-\31"\\\127]', escape) .. '"' end

local function number_text(number)
  if math_type(number) == "float" then number = tointeger(number) or number end
  return tostring(number)
end

local out, inside  -- the text so far, and the tables around the present one; set anew by each call

local function write(text) out[#out + 1] = text end

local function plain_text(value)
  local kind = type(value)
  if kind == "string" then return quote(value) end
  if kind == "number" then return number_text(value) end
  if kind == "boolean" or kind == "nil" then return tostring(value) end
  return "<" .. kind .. ">"
end

local function label(key)
  if type(key) == "string" and find(key, "^[%a_][%w_]*$") then return key end
  return "[" .. plain_text(key) .. "]"
end

local function sorted(contents, length)
  local numbers, texts, others = {}, {}, {}
  for key in next, contents do
    local kind = math_type(key) or type(key)
    if kind == "integer" and key >= 1 and key <= length then -- written as a list
    elseif kind == "integer" or kind == "float" then numbers[#numbers + 1] = key
    elseif kind == "string" then texts[#texts + 1] = key
    else others[#others + 1] = key end
  end
  sort(numbers)
  sort(texts)
  return { numbers, texts, others }
end

local put

local function put_members(contents, indent)
  local margin, length = "\n" .. rep("  ", indent), rawlen(contents)
  for i = 1, length do
    write(margin)
    put(rawget(contents, i), indent)
    write(",")
  end
  for _, keys in next, sorted(contents, length) do
    for i = 1, #keys do
      write(margin .. label(keys[i]) .. " = ")
      put(contents[keys[i]], indent)
      write(",")
    end
  end
end

local function put_table(value, indent)
  local contents = frozen[whole(value)] or value
  if next(contents) == nil then return write(rawequal(value, null) and "<null>" or "{}") end
  if inside[value] then return write("<cycle>") end
  if indent >= MAX_DEPTH then return write("<deeper>") end
  inside[value] = true
  write("{")
  put_members(contents, indent + 1)
  write("\n" .. rep("  ", indent) .. "}")
  inside[value] = nil
end

function put(value, indent)
  if type(value) == "table" then return put_table(value, indent) end
  write(plain_text(value))
end

local function dump(value)
  out, inside = {}, {}
  put(value, 0)
  local text = concat(out)
  out, inside = nil, nil
  return text
end

return { dump = dump }
