"""Builds every part in order and takes them down in reverse: for the daemon, for one run, for a check."""
