"""Incidents: what is wrong, and who has been told of it.  Pure functions and the values they take."""
