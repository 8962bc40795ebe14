"""Run monitor jobs: fetch → extract → filter → store → notify.  `cycle.py` is the place to begin."""
