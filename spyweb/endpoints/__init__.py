"""What answers HTTP requests in Lua: the project's server/init.lua, one fresh VM for each request."""
