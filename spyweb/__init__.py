"""spyweb runs small Lua scripts on a schedule, each in its own isolated VM."""

__version__ = "0.1.0"
