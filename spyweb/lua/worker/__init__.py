"""The code that runs inside a worker process; the only importer of lupa."""
