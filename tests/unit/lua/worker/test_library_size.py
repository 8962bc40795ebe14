from __future__ import annotations

from tests.fakes.lua_kit import LuaKit


def test_a_fresh_vm_has_loaded_nothing_but_what_every_script_needs() -> None:
    vm = LuaKit()
    assert vm.parts == ["codec", "library"]
    vm.run("local x = tostring(1.0) log(x, 2) print(os.time(), env_get('A'), rawget({}, 1), next({}))")
    assert vm.parts == ["codec", "library", "encode"]  # the fake's own: it packs what a script returned


def test_each_part_loads_once() -> None:
    vm = LuaKit()
    vm.run("for _ = 1, 3 do json_encode({}) json_decode('1') dump(1) copy(1) deep_copy(1) table.find({}, 1) end")
    vm.run("for _ = 1, 3 do string.format('%d', 1.5) math.sign(1) bit32.band(1) string.split('a') pcall(rawset) end")
    assert sorted(vm.parts) == sorted(set(vm.parts))


def test_the_library_and_the_codec_stay_small() -> None:
    """Every job's VM pays them: 20,600 bytes; the other 33,600 measured here are Lua's own and the fake's."""
    assert LuaKit().used_bytes() < 58_000
