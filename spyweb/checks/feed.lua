-- /// job
-- every = "1h"
-- values = { url = "https://example.org/feed.xml", expect = ["entries > 0", "newest < 7 * 86400"], timeout = 10 }
-- ///
-- check = "feed": counts the entries of an RSS or Atom feed.  `newest` is the age of the newest one, in seconds.
-- It goes over the tags once and expands no entity, so that a hostile feed takes no more than the job may use.

local MONTHS = { jan = 1, feb = 2, mar = 3, apr = 4, may = 5, jun = 6, jul = 7, aug = 8, sep = 9, oct = 10, nov = 11, dec = 12 }
local DATES = { pubdate = true, published = true, updated = true, date = true }
local ROOTS = { rss = true, feed = true, rdf = true }
local ENTITIES = { amp = "&", lt = "<", gt = ">", quot = '"', apos = "'" }

-- Days from 1970 to a date.
local function days(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  local century = year // 100
  return 365 * year + year // 4 - century + century // 4 + (153 * (month - 3) + 2) // 5 + day - 719469
end

-- Seconds from 1970 to a moment as Atom (RFC 3339) or RSS (RFC 822) writes it; nil for any other text.
local function moment(text)
  local year, month, day, rest = text:match("^%s*(%d%d%d%d)%-(%d%d)%-(%d%d)(.*)")
  if not year then
    day, month, year, rest = text:match("(%d%d?) (%a%a%a)%a* (%d%d%d%d)(.*)")
    month = month and MONTHS[month:lower()]
  end
  if not month then return nil end
  local hours, minutes, seconds, zone = rest:match("^[Tt%s]*(%d%d?):(%d%d):?(%d*)%.?%d*%s*(.*)")
  local sign, ahead, ahead_minutes = (zone or ""):match("^([+-])(%d%d):?(%d%d)")
  local offset = sign and (ahead * 3600 + ahead_minutes * 60) * (sign == "-" and -1 or 1) or 0
  local of_day = hours and hours * 3600 + minutes * 60 + (tonumber(seconds) or 0) or 0
  return days(tonumber(year), tonumber(month), tonumber(day)) * 86400 + of_day - offset
end

local function plain(text)
  text = text:match("^%s*<!%[CDATA%[(.-)%]%]>") or text
  return (text:gsub("&(%a+);", ENTITIES))
end

-- Yields the name of each tag, with a / before it where it closes, and the place behind it.
local function tags(xml)
  local at = 1
  local function behind(text, from) return (select(2, xml:find(text, from, true)) or #xml) + 1 end
  return function()
    while true do
      local open = xml:find("<", at, true)
      if not open then return nil end
      if xml:sub(open, open + 3) == "<!--" then at = behind("-->", open + 4)
      elseif xml:sub(open, open + 8) == "<![CDATA[" then at = behind("]]>", open + 9)
      else
        at = behind(">", open)
        local slash, name = xml:sub(open, open + 80):match("^<(/?)[%w_-]*:?([%w_-]*)")
        if name == "" then name = xml:sub(open, open + 80):match("^</?([%w_-]*)") end
        return slash .. name:lower(), at
      end
    end
  end
end

-- Returns what is known of a feed; nil and the reason for any other text, and for one that is cut off.
local function read(xml)
  if xml:find("\0", 1, true) then return nil, "this is no feed, or one in UTF-16, which is not read" end
  local found, is_inside, ending, is_whole = { entries = 0 }, false, nil, false
  for name, at in tags(xml) do
    if not ending and ROOTS[name] then ending = "/" .. name
    elseif name == ending then is_whole = true
    elseif name == "item" or name == "entry" then found.entries, is_inside = found.entries + 1, true
    elseif name == "/item" or name == "/entry" then is_inside = false
    elseif name == "title" and not found.title and found.entries == 0 then
      found.title = plain(xml:sub(at, (xml:find("</", at, true) or #xml) - 1):sub(1, 500))
    elseif is_inside and DATES[name] then
      local at_s = moment(xml:sub(at, at + 60):match("^[^<]*"))
      if at_s then found.newest_s = math.max(at_s, found.newest_s or at_s) end
    end
  end
  if not ending then return nil, "this is no feed" end
  if not is_whole then return nil, ("the feed is cut off: it has no <%s>"):format(ending) end
  found.newest = found.newest_s and os.time() - found.newest_s
  return found
end

local function once()
  local response, why = fetch()
  if not response then return nil, why end
  if response.status >= 400 then return nil, "the server answered " .. response.status end
  local found, doubt = read(response.body)
  if found then found.latency = response.time_ms end
  return found, doubt
end

function run() return check({ "entries > 0" }, " entries newest title latency ", once) end
