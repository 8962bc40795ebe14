-- Loaded when a script does not compile: names the construct when what was written is Luau rather than Lua 5.4.
-- The chunk takes the kit and returns explain(source, message) -> message.

local kit = ...
local raw = kit.raw
local find, gmatch, match = raw.string.find, raw.string.gmatch, raw.string.match
local tonumber, ipairs = raw.tonumber, raw.ipairs

local CONSTRUCTS = {
  { "[%w_%]%)]%s*[%+%-%*/%%%^]=[^=]", "compound assignment (`+=`)" },
  { "[%w_%]%)]%s*//=", "compound assignment (`//=`)" },
  { "[%w_%]%)]%s*%.%.=", "compound assignment (`..=`)" },
  { "`", "a backtick string" },
  { "[=%(,]%s*if%s.+%sthen%s", "an if-expression" },
  { "return%s+if%s.+%sthen%s", "an if-expression" },
  { "local%s+[%w_]+%s*:%s*[%w_{%(]", "a type annotation" },
  { "function[%s%w_.:]*%(.-[%w_]+%s*:%s*[%w_{%(]", "a type annotation" },
  { "function[%s%w_.:]*%b()%s*:%s*[%w_{%(]", "a type annotation" },
  { "^%s*export%s+type%s", "a type declaration" },
  { "^%s*type%s+[%w_<>,%s]+%s*=", "a type declaration" },
  { "%f[%w_]continue%f[^%w_]", "`continue`" },
}

-- The line that the message names, and the one before: a statement's error may show at the next token only.
local function suspects(source, number)
  local lines, at = {}, 0
  for line in gmatch(source .. "\n", "(.-)\r?\n") do
    at = at + 1
    if at == number - 1 then lines[2] = line end
    if at == number then lines[1] = line break end
  end
  return lines
end

return function(source, message)
  local number = tonumber(match(message, ":(%d+):"))
  if not number then return message end
  local lines = suspects(source, number)
  for index = 1, 2 do
    for _, construct in ipairs(CONSTRUCTS) do
      local line = lines[index]
      if line and find(line, construct[1]) then
        return message .. " (" .. construct[2] .. " is Luau; the language here is Lua 5.4)"
      end
    end
  end
  return message
end
