"""A project's own tests: which there are, how each is run, and what came of them."""
