"""Run a project's own tests: find them, run each one, report the results."""
