"""What scripts can call and are called with: one list, from which an editor's types and the reference pages are made."""
