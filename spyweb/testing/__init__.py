"""Run a project's own tests: find them, run each one, report what came of them."""
