-- Renders templates as Go's text/template writes them: {{.a.b}}, {{if}}, {{else}}, {{range}}, {{end}}, | default "x",
-- {{- -}}, {{/* */}}, $ for the whole, {{range $i, $v := .list}}.  A template is parsed into closures, and runs in the VM under
-- the job's own limits: one that grows without end is ended with its run.  Values are read raw: no metamethod runs.

local runtime = ...
local raw, frozen = runtime.raw, runtime.frozen
local find, format, gsub = raw.string.find, raw.string.format, raw.string.gsub
local match, sub = raw.string.match, raw.string.sub
local concat, sort = raw.table.concat, raw.table.sort
local error, next, pcall, type = raw.error, raw.next, runtime.pcall, raw.type
local rawequal, rawget, rawlen = raw.rawequal, raw.rawget, raw.rawlen
local tonumber, tostring, utf8_char = raw.tonumber, runtime.use("values").tostring, raw.utf8.char

local LEVELS = 100                                              -- of blocks
local LARGEST = 10 << 20                                        -- bytes of a template
local PROBLEM = {}                                              -- marks our own errors: { [PROBLEM] = text }

local function problem(line, ...) error({ [PROBLEM] = format(...), line = line }, 0) end

-- Parsing: `source` from `position` on, at `line`; set anew by each call ----------------------------------------------

local source, position, line, depth

local function shown(text) return #text > 60 and sub(text, 1, 60) .. "..." or text end

local ESCAPED = { n = "\n", r = "\r", t = "\t", ['"'] = '"', ["\\"] = "\\" }

local function count_lines(text)
  local _, lines = gsub(text, "\n", "")
  line = line + lines
end

-- The tokens of an action, up to its end: { kind, value }, kind being a text, number, field, variable or word, or a sign.
local function read_string()
  local pieces = {}
  while true do
    local plain, sign, after = match(source, '^([^"\\\n]*)(["\\])()', position)
    if not plain then problem(line, "a text without an end") end
    pieces[#pieces + 1] = plain
    position = after
    if sign == '"' then return concat(pieces) end
    local letter = sub(source, position, position)
    local code = match(source, "^u(%x%x%x%x)", position)
    if code then pieces[#pieces + 1] = utf8_char(tonumber(code, 16))
    else pieces[#pieces + 1] = ESCAPED[letter] or problem(line, "unknown escape \\%s", letter) end
    position = position + (code and 5 or 1)
  end
end

local function read_token()
  local blank, after = match(source, "^([ \t\r\n]*)()", position)
  count_lines(blank)
  position = after
  if match(source, "^%-?}}", position) and (blank ~= "" or not match(source, "^%-", position)) then return nil end
  local found
  found, after = match(source, "^%.([%a_][%w_]*)()", position)
  if found then position = after return "field", found end
  found, after = match(source, "^(%$[%w_]*)()", position)
  if found then position = after return "variable", found end
  found, after = match(source, "^([%a_][%w_]*)()", position)
  if found then position = after return "word", found end
  found, after = match(source, "^(%-?%d+%.?%d*)()", position)
  if found then position = after return "number", tonumber(found) end
  found, after = match(source, "^`([^`]*)`()", position)
  if found then
    count_lines(found)
    position = after
    return "text", found
  end
  found, after = match(source, "^(:=)()", position)
  if not found then found, after = match(source, "^([|.,=()])()", position) end
  if found then position = after return found, found end
  if sub(source, position, position) == '"' then
    position = position + 1
    return "text", read_string()
  end
  if position > #source then problem(line, "{{ without }}") end
  problem(line, "unexpected %s", shown(match(source, "^[%g\128-\255]+", position) or sub(source, position, position)))
end

-- Reads an action behind its {{, and the blanks that it trims; returns its tokens.
local function read_action()
  local tokens = {}
  while true do
    local before = position
    local kind, value = read_token()
    if not kind then break end
    local is_apart = find(sub(source, before, before), "^[ \t\r\n]") ~= nil
    tokens[#tokens + 1] = { kind = kind, value = value, is_apart = is_apart }
    if #tokens > 1000 then problem(line, "an action that is too long") end
  end
  if sub(source, position, position) == "-" then
    local blank, after = match(source, "^([ \t\r\n]*)()", position + 3)
    count_lines(blank)
    position = after
  else
    position = position + 2
  end
  return tokens
end

-- An expression: a function of the state { dot, root, variables } that returns a value, and what it is called.
local function path_of(start, fields, name, at, is_required)
  return function(state)
    local value
    if start == "." then value = state.dot
    elseif start == "$" then value = state.root
    else
      value = state.variables[start]
      if value == nil then problem(at, "nothing is named %s", start) end
    end
    for i = 1, #fields do
      if type(value) ~= "table" then
        if value == nil or not is_required then return nil end
        problem(at, "%s: a %s has no fields", name, type(value))
      end
      value = rawget(frozen[value] or value, fields[i])
    end
    return value
  end
end

local function parse_operand(tokens, index)
  local token = tokens[index]
  local kind, value = token and token.kind, token and token.value
  local at = line
  if kind == "text" or kind == "number" then return function() return value end, index + 1 end
  if kind == "word" and (value == "true" or value == "false") then return function() return value == "true" end, index + 1 end
  if kind == "word" and value == "nil" then return function() return nil end, index + 1 end
  local start, fields, name = ".", {}, ""
  if kind == "variable" then
    start, name = value, value
    index = index + 1
  elseif kind == "." then
    return path_of(".", {}, ".", at, true), index + 1, "."
  elseif kind ~= "field" then
    if kind == "word" then problem(at, "there is no function %s", shown(value)) end
    problem(at, token and "unexpected %s" or "a value expected", token and shown(tostring(value)))
  end
  local is_first = true
  while tokens[index] and tokens[index].kind == "field" and (is_first and kind == "field" or not tokens[index].is_apart) do
    fields[#fields + 1] = tokens[index].value
    name = name .. "." .. tokens[index].value
    index, is_first = index + 1, false
  end
  return path_of(start, fields, name, at, true), index, name
end

local function is_true(value)
  if value == nil or value == false or value == 0 or value == "" or rawequal(value, runtime.null) then return false end
  return type(value) ~= "table" or next(frozen[value] or value) ~= nil
end

local function default_of(value, get_default)
  return function(state)
    local found = value(state)
    if is_true(found) or found == false then return found end
    return get_default(state)
  end
end

-- A pipeline; returns its function, the name of what it looks up if that must be there, and the next token.
local function parse_pipeline(tokens, index)
  local token = tokens[index]
  local value, name
  if token and token.kind == "word" and token.value == "default" then
    local default
    default, index = parse_operand(tokens, index + 1)
    value, index = parse_operand(tokens, index)
    value = default_of(value, default)
  else
    value, index, name = parse_operand(tokens, index)
  end
  while tokens[index] and tokens[index].kind == "|" do
    local word = tokens[index + 1]
    if not word or word.value ~= "default" then
      problem(line, "there is no function %s", word and shown(tostring(word.value)) or "behind |")
    end
    local default
    default, index = parse_operand(tokens, index + 2)
    value, name = default_of(value, default), nil
  end
  return value, name, index
end

local function parse_whole(tokens, index)
  local value, name, after = parse_pipeline(tokens, index)
  if tokens[after] then problem(line, "unexpected %s", shown(tostring(tokens[after].value))) end
  return value, name
end

local function put_value(at, value, name)
  return function(state, out)
    local found = value(state)
    local kind = type(found)
    if found == nil then problem(at, "nothing is named %s", name or "that") end
    if kind == "table" then
      if rawequal(found, runtime.null) then problem(at, "%s is null", name or "the value") end
      problem(at, "%s is a table", name or "the value")
    end
    if kind ~= "string" and kind ~= "number" and kind ~= "boolean" then problem(at, "%s is a %s", name or "the value", kind) end
    out[#out + 1] = tostring(found)
  end
end

local function run_all(parts, state, out)
  for i = 1, #parts do parts[i](state, out) end
end

local parse_block

-- Returns the parts of what follows, and the action that ended it: its first word, and its tokens.
local function parse_if(tokens)
  local value = parse_whole(tokens, 2)
  local yes, word, ending = parse_block("if")
  local no = {}
  if word == "else" and ending[2] then
    if ending[2].value ~= "if" then problem(line, "unexpected %s", shown(tostring(ending[2].value))) end
    raw.table.remove(ending, 1)
    no[1] = parse_if(ending)
    return function(state, out) run_all(is_true(value(state)) and yes or no, state, out) end
  end
  if word == "else" then no = parse_block("else") end
  return function(state, out) run_all(is_true(value(state)) and yes or no, state, out) end
end

local function sorted_keys(contents)
  local numbers, texts = {}, {}
  for key in next, contents do
    if type(key) == "number" then numbers[#numbers + 1] = key
    elseif type(key) == "string" then texts[#texts + 1] = key end
  end
  sort(numbers)
  sort(texts)
  for i = 1, #texts do numbers[#numbers + 1] = texts[i] end
  return numbers
end

local function is_list(contents)
  local count, length = 0, rawlen(contents)
  for _ in next, contents do
    count = count + 1
    if count > length then return false end
  end
  return true
end

local function parse_range(tokens)
  local at, first, second, index = line, nil, nil, 2
  local signs = {}
  for i = 2, 5 do signs[i] = tokens[i] and tokens[i].kind end
  if signs[2] == "variable" and signs[3] == ":=" then second, index = tokens[2].value, 4
  elseif signs[2] == "variable" and signs[3] == "," and signs[4] == "variable" and signs[5] == ":=" then
    first, second, index = tokens[2].value, tokens[4].value, 6
  end
  local value, name = parse_whole(tokens, index)
  local body, word = parse_block("range")
  local otherwise = word == "else" and parse_block("else") or {}
  return function(state, out)
    local found = value(state)
    if found == nil and name then problem(at, "nothing is named %s", name) end
    if found == nil or found == false or rawequal(found, runtime.null) then return run_all(otherwise, state, out) end
    if type(found) ~= "table" then problem(at, "range over a %s", type(found)) end
    local contents = frozen[found] or found
    if next(contents) == nil then return run_all(otherwise, state, out) end
    local variables, dot = state.variables, state.dot
    local inner = {}
    for key, each in next, variables do inner[key] = each end
    state.variables = inner
    local function step(key, each)
      state.dot = each
      if first then inner[first] = key end
      if second then inner[second] = each end
      run_all(body, state, out)
    end
    if is_list(contents) then
      for i = 1, rawlen(contents) do step(i - 1, contents[i]) end
    else
      local keys = sorted_keys(contents)
      for i = 1, #keys do step(keys[i], contents[keys[i]]) end
    end
    state.variables, state.dot = variables, dot
  end
end

-- Reads text and actions up to the action that ends the block: else or end; or the end of all.
function parse_block(block)
  local parts, begun = {}, line
  depth = depth + 1
  if depth > LEVELS then problem(line, "more than %d levels of blocks", LEVELS) end
  while true do
    local start = find(source, "{{", position, true)
    local text = sub(source, position, start and start - 1)
    count_lines(text)
    local trims_before = start and match(source, "^{{%-[ \t\r\n]", start)
    if trims_before then text = match(text, "^(.-)[ \t\r\n]*$") end
    if text ~= "" then parts[#parts + 1] = function(_, out) out[#out + 1] = text end end
    if not start then
      if block then problem(begun, "{{%s}} without {{end}}", block) end
      return parts
    end
    position = start + (trims_before and 3 or 2)
    local comment, after = match(source, "^[ \t\r\n]*(/%*.-%*/)()", position)
    if comment then
      count_lines(sub(source, position, after - 1))
      position = after
    end
    local at = line
    local tokens = read_action()
    local first = tokens[1] and tokens[1].kind == "word" and tokens[1].value
    if not tokens[1] then
      if not comment then problem(at, "an empty action") end
    elseif first == "end" or first == "else" then
      if not block or block == "else" and first == "else" then problem(at, "{{%s}} without {{if}} or {{range}}", first) end
      if first == "end" and tokens[2] then problem(at, "unexpected %s", shown(tostring(tokens[2].value))) end
      depth = depth - 1
      return parts, first, tokens
    elseif first == "if" then parts[#parts + 1] = parse_if(tokens)
    elseif first == "range" then parts[#parts + 1] = parse_range(tokens)
    else parts[#parts + 1] = put_value(at, parse_whole(tokens, 1)) end
  end
end

-- The outside --------------------------------------------------------------------------------------------------------

local function run(text, vars)
  source, position, line, depth = text, 1, 1, 0
  local parts = parse_block()
  source = nil
  local out = {}
  run_all(parts, { dot = vars, root = vars, variables = {} }, out)
  return concat(out)
end

-- Keeps the reason for an error about a nil value, which may come from here.
local function refused(...)
  runtime.internals.now.run.unrendered = format(...)
  return nil, format(...)
end

-- Returns the text, or nil and the problem, with its line.
local function render_text(text, vars, name)
  if #text > LARGEST then return refused("%s: a template of %d bytes is over the limit of %d", name, #text, LARGEST) end
  local ok, result = pcall(run, text, vars)
  if ok then return result end
  local reason = type(result) == "table" and rawget(result, PROBLEM)
  if not reason then error(result, 0) end
  return refused("%s:%d: %s", name, rawget(result, "line"), reason)
end

-- Reads the arguments that template.render and file.template share.  Returns the template, its name and the values; or nil
-- and why it can't be read.  The script has called our caller.
local function source_of(given, name)
  if type(given) ~= "table" then runtime.bad_argument(1, name, "table", given, 4) end
  local function field(key, kind)
    local value = rawget(frozen[given] or given, key)
    if value ~= nil and type(value) ~= kind then
      error(format("bad argument #1 to '%s' (field '%s': %s expected, got %s)", name, key, kind, type(value)), 4)
    end
    return value
  end
  local text, src, vars = field("text", "string"), field("src", "string"), field("vars", "table")
  if (text == nil) == (src == nil) then error(format("bad argument #1 to '%s' (either 'src' or 'text' expected)", name), 3) end
  if text then return text, "template", vars or {} end
  local content, reason = runtime.call("_template", name, src)
  return content, content and src or reason, vars or {}
end

local function render(given)
  local text, name, vars = source_of(given, "template.render")
  if text then return render_text(text, vars, name) end
  return refused("%s", name)
end

return { render = render, render_text = render_text, source_of = source_of }
