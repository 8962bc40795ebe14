"""What spyweb logs: its own lines on stdout, the lines of each job in its hooks.log."""
