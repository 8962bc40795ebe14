"""Build every part in order and take them down in reverse: for the daemon, for one run, for a check."""
