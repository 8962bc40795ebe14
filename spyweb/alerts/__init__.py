"""Incidents reach people: when they may be told, by which channels, in which words."""
