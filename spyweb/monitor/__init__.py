"""Monitor jobs: the fetch → extract → filter → store → notify pipeline.  `cycle.py` is the place to begin."""
