"""Recognise who asks, and hold it to what it may do."""
