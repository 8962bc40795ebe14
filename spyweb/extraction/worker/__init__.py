"""The code of an extractor process: the only place that speaks to selectolax."""
