"""`template.render`, which is in render.lua."""

from __future__ import annotations

import pytest

from tests.fakes.lua_library import LuaLibrary


@pytest.fixture(scope="module")
def vm() -> LuaLibrary:
    files = {b"app.tmpl": b"port {{.port}}\n", b"bad.tmpl": b"one\n{{.two}}\n"}

    def read(function: object, src: object) -> list[object]:
        assert isinstance(function, bytes)
        assert isinstance(src, bytes)
        return [files[src]] if src in files else [None, b"%s: 'x': there is no such file" % function]

    return LuaLibrary(ops={"_template": read})


VARS = """{
  name = "web", port = 80, ratio = 2.0, on = true, off = false, empty = "", zero = 0, none = {}, null = state.null,
  db = {host = "db1", user = {name = "u"}}, hosts = {"a", "b"}, ports = {http = 80, https = 443},
  servers = {{host = "x", tls = true}, {host = "y"}}, matrix = {{1, 2}, {3}},
}"""


def rendered(vm: LuaLibrary, template: str) -> list[object]:
    return vm.run(f"return template.render{{text = (...), vars = {VARS}}}", template.encode())


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("", ""),
        ("plain }} text { {", "plain }} text { {"),
        ("a{{.name}}b {{ .port }} {{.ratio}} {{.on}}", "awebb 80 2 true"),
        ("{{.db.host}} {{.db.user.name}} {{$.name}}", "db1 u web"),
        ('{{"a\\n\\"}}"}} {{`b{{`}} {{5}} {{-1.5}}', 'a\n"}} b{{ 5 -1.5'),
        ("{{if .on}}yes{{end}}{{if .off}}no{{else}}else{{end}}", "yeselse"),
        ("{{if .off}}1{{else if .zero}}2{{else if .name}}3{{else}}4{{end}}", "3"),
        ("{{if .nobody}}1{{else}}2{{end}}{{if .nobody.at.all}}1{{else}}2{{end}}", "22"),
        ("{{if .empty}}1{{end}}{{if .none}}1{{end}}{{if .null}}1{{end}}{{if .db}}2{{end}}", "2"),
        ("{{range .hosts}}[{{.}}]{{end}}", "[a][b]"),
        ("{{range .none}}x{{else}}nothing{{end}}", "nothing"),
        ("{{range .servers}}{{.host}}{{if .tls}}+{{end}} {{$.name}};{{end}}", "x+ web;y web;"),
        ("{{range $i, $h := .hosts}}{{$i}}={{$h}} {{end}}", "0=a 1=b "),
        ("{{range $name, $port := .ports}}{{$name}}:{{$port}} {{end}}", "http:80 https:443 "),
        ("{{range $row := .matrix}}{{range $row}}{{.}}{{end}}|{{end}}", "12|3|"),
        ("{{range $s := .servers}}{{$s.host}} {{end}}", "x y "),
        ('{{.nobody | default "d"}} {{.name | default "d"}} {{.empty | default .port}}', "d web 80"),
        ("{{default 5 .nobody}} {{.zero | default 7}} {{.off | default true}}", "5 7 false"),
        ('{{.nobody.at.all | default "d"}}', "d"),
        ("a {{- .port -}} \n b", "a80b"),
        ("{{- /* a comment\n */ -}}\n x", "x"),
        ("a{{/* b */}}c", "ac"),
        ("{{range .hosts -}}\n  {{.}}\n{{- end}}", "ab"),
        ("{{if .on -}} y {{- end}} z", "y z"),
        ("{{ .name\n}}", "web"),
    ],
)
def test_it_renders_as_go_does(vm: LuaLibrary, template: str, text: str) -> None:
    assert rendered(vm, template) == [text.encode()]


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("a\n{{.nobody}}", "2: nothing is named .nobody"),
        ("{{.db.nobody}}", "1: nothing is named .db.nobody"),
        ("{{.a.b.c}}", "1: nothing is named .a.b.c"),
        ("{{.name.x}}", "1: .name.x: a string has no fields"),
        ("{{.db}}", "1: .db is a table"),
        ("{{.null}}", "1: .null is null"),
        ("{{range .hosts}}\n{{.x}}{{end}}", "2: .x: a string has no fields"),
        ("{{range .nobody}}{{end}}", "1: nothing is named .nobody"),
        ("{{range .name}}{{end}}", "1: range over a string"),
        ("{{$x}}", "1: nothing is named $x"),
        ("a\n\n{{if .on}}", "3: {{if}} without {{end}}"),
        ("{{range .hosts}}{{else}}", "1: {{else}} without {{end}}"),
        ("{{end}}", "1: {{end}} without {{if}} or {{range}}"),
        ("{{else}}", "1: {{else}} without {{if}} or {{range}}"),
        ("{{if .on}}{{else}}{{else}}{{end}}", "1: {{else}} without {{if}} or {{range}}"),
        ("{{.name", "1: {{ without }}"),
        ("{{}}", "1: an empty action"),
        ("{{if}}{{end}}", "1: a value expected"),
        ("{{printf .name}}", "1: there is no function printf"),
        ("{{.name | upper}}", "1: there is no function upper"),
        ("{{.name .port}}", "1: unexpected port"),
        ("{{'x'}}", "1: unexpected 'x'}}"),
        ('{{"x}}', "1: a text without an end"),
        ("{{end x}}", "1: {{end}} without {{if}} or {{range}}"),
        ("{{if .on}}{{end x}}", "1: unexpected x"),
        ("{{if .on}}" * 200, "1: more than 100 levels of blocks"),
    ],
)
def test_what_is_wrong_is_nil_and_a_message_with_the_line(vm: LuaLibrary, template: str, problem: str) -> None:
    assert rendered(vm, template) == [None, f"template:{problem}".encode()]


def test_a_file_is_read_by_the_daemon(vm: LuaLibrary) -> None:
    assert vm.run("return template.render{src = 'app.tmpl', vars = {port = 80}}") == [b"port 80\n"]
    assert vm.run("return template.render{src = 'bad.tmpl'}") == [None, b"bad.tmpl:2: nothing is named .two"]
    assert vm.run("return template.render{src = 'none'}") == [None, b"template.render: 'x': there is no such file"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("'x'", "(table expected, got string)"),
        ("{}", "(either 'src' or 'text' expected)"),
        ("{src = 'a', text = 'b'}", "(either 'src' or 'text' expected)"),
        ("{text = 5}", "(field 'text': string expected, got number)"),
        ("{text = 'a', vars = 'b'}", "(field 'vars': table expected, got string)"),
    ],
)
def test_a_wrong_type_raises(vm: LuaLibrary, call: str, message: str) -> None:
    assert vm.error(f"template.render({call})") == f"script.lua:1: bad argument #1 to 'template.render' {message}"


def test_no_metamethod_of_the_values_runs(vm: LuaLibrary) -> None:
    script = """
      local evil = setmetatable({x = 1}, {__index = error, __tostring = error, __len = error, __pairs = error})
      return template.render{text = "{{.v.x}}{{range .v}}{{.}}{{end}}{{.v.y | default 2}}", vars = {v = evil}}
    """
    assert vm.run(script) == [b"112"]


def test_a_template_that_grows_without_end_is_ended_with_its_memory() -> None:
    small = LuaLibrary(memory_limit=16 << 20)
    script = """
      local l = {} for i = 1, 1000 do l[i] = ("x"):rep(1000) end
      return template.render{text = "{{range $.l}}{{range $.l}}{{range $.l}}{{.}}{{end}}{{end}}{{end}}", vars = {l = l}}
    """
    assert small.error(script) == "not enough memory"


def test_parsing_costs_no_more_than_the_length(vm: LuaLibrary) -> None:
    long = "{{if .on}}x{{else}}y{{end}}\n" * 20_000
    (text,) = rendered(vm, long)
    assert text == b"x\n" * 20_000
