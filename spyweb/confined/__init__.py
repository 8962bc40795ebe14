"""Processes that work for the daemon without rights, with few environment variables, and no longer than it lives."""
