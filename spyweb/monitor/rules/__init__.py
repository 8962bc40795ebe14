"""The pure part of a cycle: values between Python and Lua, texts, the choice of a proxy."""
