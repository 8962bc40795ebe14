"""`spyweb state`: what scripts keep, looked at and changed from outside."""
