-- The table `template`.  What it does is in render.lua, which loads when it is first called.

local runtime = ...

return { template = { render = runtime.lazy("render", "render") } }
