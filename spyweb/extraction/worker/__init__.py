"""The code that runs in an extractor process; the only importer of selectolax."""
