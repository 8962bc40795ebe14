"""Notify people of incidents: when, by which channels, in which words."""
