-- `spyweb test front_page` runs every global function here, and in hooks.lua, whose name begins with test_.

function test_points_are_a_number()
  spyweb.assert_eq(points_of("12 points"), "12")
  spyweb.assert_eq(points_of("1 point"), "1")
end

function test_a_story_without_votes_has_no_points()
  spyweb.assert_eq(points_of(""), "0")
end

-- Functions that a hook calls can be replaced: each test has a separate VM.
function test_the_page_is_the_file()
  fs_read = function(name)
    return "<p>" .. name .. "</p>"
  end
  local response = override_fetch({ url = "https://news.example/" })
  spyweb.assert_eq(response.body, "<p>page.txt</p>")
  spyweb.assert_eq(response.url, "https://news.example/")
end
