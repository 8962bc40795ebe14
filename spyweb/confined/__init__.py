"""The processes that work for the daemon without rights, with few variables, and no longer than it lives."""
