-- The hooks of a monitor are global functions; each one may be left out.

-- In place of the HTTP client: the page is the file beside this one.
function override_fetch(request)
  return { status = 200, url = request.url, body = fs_read("page.txt") }
end

-- "12 points" → "12"; a story that nobody has voted for has none
function points_of(text)
  return text:match("^(%d+) points?$") or "0"
end

-- Before items are compared with those that were seen: the moment to tidy them up.
function after_extract(items)
  for _, item in ipairs(items) do
    item.fields.points = points_of(item.fields.points)
  end
  return items
end

-- Only new items come this far, or further.
function before_notify(items)
  for _, item in ipairs(items) do
    log("new: " .. item.fields.title .. ", points: " .. item.fields.points)
  end
  return items
end
