"""`spyweb state`: look at what scripts keep, and change it, from outside."""
