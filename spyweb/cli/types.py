def types() -> None:
    """Write type definitions for editors."""
