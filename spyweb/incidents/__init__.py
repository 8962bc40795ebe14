"""Incidents: their signs, and which channels were notified.  Pure functions and the values they take."""
