"""The stages of a cycle, in the modules that cycle.py names in their order."""
