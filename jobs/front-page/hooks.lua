-- The hooks of a monitor are global functions; each one may be left out.

-- In place of the HTTP client: the page is the file beside this one.
function override_fetch(request)
  return { status = 200, url = request.url, body = fs_read("page.txt") }
end

-- "12 points" → "12"; a story without votes has no points
function points_of(text)
  return text:match("^(%d+) points?$") or "0"
end

-- Called before items are compared with those seen earlier: the place to clean them up.
function after_extract(items)
  for _, item in ipairs(items) do
    item.fields.points = points_of(item.fields.points)
  end
  return items
end

-- Called with new and changed items only; `item.old` has the tracked fields before a change.
function before_notify(items)
  for _, item in ipairs(items) do
    local before = item.old and item.old.points .. " → " or ""
    log((item.old and "changed: " or "new: ") .. item.fields.title .. ", points: " .. before .. item.fields.points)
  end
  return items
end
