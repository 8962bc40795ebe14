-- `spyweb test` runs each of these in a separate VM, with a separate database.

function test_tidy_leaves_single_spaces()
  spyweb.assert_eq(tidy("  a \n  b "), "a b")
end

function test_items_are_tidied()
  local items = after_extract({ { fields = { title = "t", text = " a\n b" }, matches = {} } }, {})
  spyweb.assert_eq(items[1].fields.text, "a b")
end
