"""Log spyweb's own lines on stdout, and the lines of each job in its hooks.log."""
