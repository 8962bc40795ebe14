-- Hooks change what a cycle does, each one of its steps; all of them may be left out.

-- Without spaces at its ends and doubled ones within.
function tidy(text)
  return (text:gsub("%s+", " "):match("^%s*(.-)%s*$"))
end

-- The items as they were found, before any is compared with those seen before.
function after_extract(items, ctx)
  for _, item in ipairs(items) do
    item.fields.text = tidy(item.fields.text)
  end
  return items
end

-- Only what is new comes here.
function before_notify(items, ctx)
  for _, item in ipairs(items) do
    log("new: " .. item.fields.title)
  end
  return items
end
