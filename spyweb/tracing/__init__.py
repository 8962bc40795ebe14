"""Traces of runs for a collector of OpenTelemetry: a run, its stages or ops, and the requests that they send."""
