"""What scripts can call and are called with: one list, for editors and for the reference."""
