"""What the processes that work for the daemon have in common: no rights, few variables, and no life after it."""
