"""The Lua endpoints of a project: its server/init.lua answers HTTP requests, each in a fresh VM."""
