"""The programs that scripts run: started outside the daemon, watched over, and ended with all that they started."""
