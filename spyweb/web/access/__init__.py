"""Identify the sender of each request, and check its rights."""
