"""Checks: jobs without a script of their own, which run one that comes with spyweb."""
