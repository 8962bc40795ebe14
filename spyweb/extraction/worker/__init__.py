"""What runs in an extractor process: the only place that speaks to selectolax."""
