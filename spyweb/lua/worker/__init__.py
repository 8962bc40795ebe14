"""Everything inside a worker process: the only importer of lupa."""
