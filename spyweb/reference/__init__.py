"""The generated documentation of everything that scripts can call, or are called with."""
