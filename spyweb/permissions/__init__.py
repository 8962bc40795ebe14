"""The permissions of jobs: one immutable policy for each.  Pure."""
