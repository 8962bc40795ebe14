-- Each hook changes one step of a cycle; each is optional.

-- Removes spaces at both ends, and repeated spaces in between.
function tidy(text)
  return (text:gsub("%s+", " "):match("^%s*(.-)%s*$"))
end

-- Called with the items as they were found, before they are compared with those seen earlier.
function after_extract(items, ctx)
  for _, item in ipairs(items) do
    item.fields.text = tidy(item.fields.text)
  end
  return items
end

-- Called with new items only.
function before_notify(items, ctx)
  for _, item in ipairs(items) do
    log("new: " .. item.fields.title)
  end
  return items
end
