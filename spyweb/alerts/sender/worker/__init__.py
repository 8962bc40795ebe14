"""Everything inside the process that speaks to Apprise; it knows nothing of the daemon but the wire."""
